package adaptive

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/spillway-go/spillway/internal/name"
)

// Off disables the feature of a field of [Options], where zero means the default.
const Off = -1

// Options are the options of a [Limit]. The zero Options are the defaults.
type Options struct {
	// Name is the name of the Limit in rejections and Stats: printable ASCII, at most 64 bytes. If Name is empty, it is
	// "adaptive". It cannot change later.
	Name string
	// Estimator moves the limit. If Estimator is nil, it is a [Gradient2] with its defaults.
	Estimator Estimator
	// Initial is the limit at the start, from Min to Max. If Initial is 0, it is 20, or the nearest bound. It cannot change later.
	Initial int `tune:"-"`
	// Min is the least limit, at least 1. If Min is 0, it is 1.
	Min int
	// Max is the greatest limit, at least Min. If Max is 0, it is 1000.
	Max int
	// MaxRise is the factor, above 1, by which the latency that counts as healthy may rise within an hour of traffic. A
	// greater factor adapts sooner to requests that became slower for good, but is more tolerant of a long incident. If
	// MaxRise is 0, it is 2. If it is [Off], there is no such bound. It has no effect on [AIMD].
	MaxRise float64
	// MaxBaseline is the longest latency that may count as healthy, such as your objective for the mean latency. If
	// MaxBaseline is 0, only MaxRise bounds it. It has no effect on [AIMD].
	MaxBaseline time.Duration
}

// withDefaults returns o with every zero field set to its default, or an error that names the invalid field.
func (o Options) withDefaults() (Options, error) {
	o.Min = cmp.Or(o.Min, 1)
	o.Max = cmp.Or(o.Max, 1000)
	o.Initial = cmp.Or(o.Initial, min(max(20, o.Min), o.Max))
	o.MaxRise = cmp.Or(o.MaxRise, 2.0)
	if o.Estimator == nil {
		o.Estimator = &Gradient2{}
	}
	var err error
	if o.Name, err = name.Or("adaptive", o.Name, "adaptive"); err != nil {
		return o, err //nolint:wrapcheck // it names the field
	}
	return o, o.validate()
}

func (o *Options) validate() error {
	switch {
	case o.Min < 1:
		return fmt.Errorf("adaptive: Min must be at least 1, got %d", o.Min)
	case o.Max < o.Min:
		return fmt.Errorf("adaptive: Max must be at least Min, which is %d, got %d", o.Min, o.Max)
	case !(o.MaxRise > 1) && o.MaxRise != Off || math.IsInf(o.MaxRise, 1):
		return fmt.Errorf("adaptive: MaxRise must be above 1 and finite, or Off, got %v", o.MaxRise)
	case o.MaxBaseline < 0:
		return fmt.Errorf("adaptive: MaxBaseline must not be negative, got %v", o.MaxBaseline)
	}
	return validate(o.Estimator)
}

// validate returns an error for invalid settings of an Estimator of this package, and for a nil pointer of any type.
func validate(e Estimator) error {
	if v := reflect.ValueOf(e); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("adaptive: Estimator must not be a nil %T", e)
	}
	switch e := e.(type) {
	case *Gradient2:
		if e.Tolerance != 0 && (!(e.Tolerance >= 1) || math.IsInf(e.Tolerance, 1)) {
			return fmt.Errorf("adaptive: Gradient2: Tolerance must be at least 1 and finite, got %v", e.Tolerance)
		}
	case *AIMD:
		if e.Timeout < 0 {
			return fmt.Errorf("adaptive: AIMD: Timeout must not be negative, got %v", e.Timeout)
		}
	}
	return nil
}

// Options returns the current options, with every default filled in. Change them and pass them to [Limit.Tune].
func (l *Limit) Options() Options {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opts
}

// Tune replaces all options while requests go on: a zero field means its default, as in [New]. The limit and the
// healthy latencies learned so far stay. Another Estimator begins from the present limit. The current one continues if
// it is passed again, or if Estimator is nil and New or Tune made it. Name and Initial cannot change: each must be zero
// or the one given to New. Tune returns an error that names the invalid field, and then changes nothing.
func (l *Limit) Tune(o Options) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	opts, own, err := l.next(o)
	if err == nil {
		l.install(opts, own)
	}
	return err
}

// Check returns the options that Tune would put in force, with every default filled in, or the error of Tune. It changes
// nothing.
func (l *Limit) Check(o Options) (Options, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	opts, _, err := l.next(o)
	return opts, err
}

// next returns the options that replace those in force, and whether the Limit owns their Estimator. The caller holds the lock.
func (l *Limit) next(o Options) (opts Options, own bool, err error) {
	if o.Initial != 0 && o.Initial != l.opts.Initial {
		return o, false, fmt.Errorf("adaptive: Tune: Initial cannot change from %d, got %d", l.opts.Initial, o.Initial)
	}
	o.Initial = l.opts.Initial
	if o.Name, err = name.Keep("adaptive", l.opts.Name, o.Name); err != nil {
		return o, false, err //nolint:wrapcheck // it names the field
	}
	own = o.Estimator == nil
	if own && l.own {
		o.Estimator = l.opts.Estimator
	}
	opts, err = o.withDefaults()
	return opts, own || l.own && same(opts.Estimator, l.opts.Estimator), err
}

// same reports whether two Estimators are the same pointer.
func same(a, b Estimator) bool {
	v, w := reflect.ValueOf(a), reflect.ValueOf(b)
	return v.Kind() == reflect.Pointer && v.Type() == w.Type() && v.Pointer() == w.Pointer()
}
