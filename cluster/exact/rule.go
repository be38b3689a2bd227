package exact

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/spillway-go/spillway/internal/isnil"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/limiter"
)

// A rule holds the figures of a limiter.Rule that the scripts need. Rules can be compared.
type rule struct {
	kind     kind
	name     string
	limit    int64 // greatest cost that can pass
	rate     limiter.Rate
	window   time.Duration
	buckets  int
	calendar limiter.Calendar
	location *time.Location
}

// A kind selects the part of the script for a rule.
type kind byte

const (
	bucketKind   kind = 'b'
	windowKind   kind = 'w'
	calendarKind kind = 'c'
	ringKind     kind = 's'
	logKind      kind = 'l'
)

const (
	// maxTokens bounds the counts of scripts: their numbers are exact up to 2^53 only, and they add two.
	maxTokens = 1 << 52
	// maxMemory is the longest time that a limit remembers.
	maxMemory = 10 * 366 * 24 * time.Hour
	// maxLog is the greatest limit of a SlidingLog, which takes up to 110 bytes of Redis for each token.
	maxLog = 100_000
)

// ruleOf returns the figures of a rule. The error names the invalid field, or the type of a rule that processes cannot share.
func ruleOf(given limiter.Rule) (rule, error) {
	if isnil.Is(given) {
		return rule{}, errors.New("must be set, got nil")
	}
	l, err := limiter.New(given) // it validates the rule and fills in the defaults
	if err != nil {
		return rule{}, err
	}
	var r rule
	switch o := l.Rule().(type) {
	case limiter.Bucket:
		r = rule{kind: bucketKind, name: o.Name, rate: o.Rate, limit: int64(o.Burst)}
	case limiter.FixedWindow:
		r = rule{kind: windowKind, name: o.Name, limit: int64(o.Limit), window: o.Period, calendar: o.Calendar, location: o.Location}
		if o.Calendar != 0 {
			r.kind = calendarKind
		}
	case limiter.SlidingWindow:
		r = rule{kind: ringKind, name: o.Name, limit: int64(o.Limit), window: o.Window, buckets: o.Buckets}
	case limiter.SlidingLog:
		r = rule{kind: logKind, name: o.Name, limit: int64(o.Limit), window: o.Window}
	case limiter.Concurrency:
		return r, fmt.Errorf("a %T is not for a Limit: a lock.Semaphore bounds how many run at once", o)
	default:
		return r, fmt.Errorf("a %T cannot be shared: must be a limiter.Bucket, FixedWindow, SlidingWindow or SlidingLog", o)
	}
	return r, r.validate()
}

// rulesOf returns the figures of rules.
func rulesOf(what string, given []limiter.Rule) ([]rule, error) {
	rules := make([]rule, len(given))
	for i, g := range given {
		var err error
		if rules[i], err = ruleOf(g); err != nil {
			return nil, fmt.Errorf("exact: %sRules[%d]: %w", what, i, err)
		}
	}
	return rules, nil
}

// span returns the time in which the whole limit of the rule comes back.
func (r rule) span() time.Duration {
	switch {
	case r.kind == bucketKind:
		per, drain := r.ticks()
		return time.Duration(ceilDiv(r.limit*per, drain)) * time.Microsecond
	case r.calendar == limiter.EveryMinute:
		return time.Minute
	case r.calendar == limiter.EveryHour:
		return time.Hour
	case r.calendar == limiter.EveryDay:
		return 24 * time.Hour
	case r.calendar == limiter.EveryMonth:
		return 30 * 24 * time.Hour
	}
	return r.window
}

// String returns a text such as "token bucket: 100 per 1s, at most 20 at once".
func (r rule) String() string {
	if r.kind == bucketKind {
		return fmt.Sprintf("%s: %v, at most %d at once", r.name, r.rate, r.limit)
	}
	return fmt.Sprintf("%s: %d in %v", r.name, r.limit, r.span())
}

// reason returns why the rule refuses, in the words of package limiter.
func (r rule) reason() string {
	if r.kind == bucketKind {
		return rejections.Rate
	}
	return rejections.Quota
}

// local returns the part of a rule for one of that many nodes.
func (r rule) local(nodes int) limiter.Rule {
	n := int64(nodes)
	limit := int(max(r.limit/n, 1))
	switch r.kind {
	case bucketKind:
		rate := r.rate
		if int64(rate.Tokens)%n == 0 {
			rate.Tokens /= nodes
		} else {
			rate.Per = min(rate.Per, math.MaxInt64/time.Duration(nodes)) * time.Duration(nodes)
		}
		return limiter.Bucket{Rate: rate, Burst: limit, Name: r.name}
	case ringKind:
		return limiter.SlidingWindow{Limit: limit, Window: r.window, Buckets: r.buckets, Name: r.name}
	case logKind:
		return limiter.SlidingLog{Limit: limit, Window: r.window, Name: r.name}
	}
	return limiter.FixedWindow{Limit: limit, Period: r.window, Calendar: r.calendar, Location: r.location, Name: r.name}
}

// most names the field that sets limit.
func (r rule) most() string {
	if r.kind == bucketKind {
		return "Burst"
	}
	return "Limit"
}

// validate returns an error that names a field whose value is valid in one process but cannot be kept in Redis.
func (r rule) validate() error {
	switch {
	case r.limit > maxTokens:
		return fmt.Errorf("%s: %s must be at most 2^52, got %d", r.name, r.most(), r.limit)
	case r.kind == logKind && r.limit > maxLog:
		return fmt.Errorf("%s: Limit must be at most %d, got %d", r.name, maxLog, r.limit)
	case r.kind == bucketKind:
		return r.validateBucket()
	case r.calendar == 0 && (r.window < time.Millisecond || r.window > maxMemory):
		return fmt.Errorf("%s: window must be in 1ms..%v, got %v", r.name, maxMemory, r.window)
	}
	return nil
}

func (r rule) validateBucket() error {
	if r.rate.Tokens < 1 || int64(r.rate.Tokens) > maxTokens/1000 {
		return fmt.Errorf("%s: Rate.Tokens must be in 1..2^52/1000, got %d", r.name, r.rate.Tokens)
	}
	per, drain := r.ticks()
	hi, full := bits.Mul64(uint64(r.limit), uint64(per))
	if hi != 0 || full > maxTokens || full/uint64(drain) > uint64(maxMemory/time.Microsecond) {
		return fmt.Errorf("%s: Burst of %d tokens is too much at a rate of %v", r.name, r.limit, r.rate)
	}
	return nil
}

// ticks returns the rate as a fraction in lowest terms: the ticks per token, and the ticks that drain each µs.
func (r rule) ticks() (per, drain int64) {
	drain, per = int64(r.rate.Tokens)*1000, int64(r.rate.Per)
	x, y := drain, per
	for y != 0 {
		x, y = y, x%y
	}
	return per / x, drain / x
}

// figures is how many arguments of the script describe one rule, besides its kind.
const figures = 5

// args returns these arguments. The last four of a calendar are filled in later.
func (r rule) args() [figures]int64 {
	switch r.kind {
	case bucketKind:
		per, drain := r.ticks()
		return [figures]int64{per, drain, per * r.limit}
	case ringKind:
		return [figures]int64{r.limit, ceilDiv(micros(r.window), int64(r.buckets)), int64(r.buckets)}
	}
	return [figures]int64{r.limit, micros(r.window)}
}

// micros returns d in µs, rounded up.
func micros(d time.Duration) int64 { return ceilDiv(int64(d), int64(time.Microsecond)) }

func ceilDiv(a, b int64) int64 {
	q := a / b
	if q*b < a {
		q++
	}
	return q
}
