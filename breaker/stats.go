package breaker

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/name"
)

// counts are outcomes in the window of a Breaker.
type counts struct{ successes, failures, ignored, slow int64 }

// Stats is a snapshot of the state of a [Breaker]. Counts are read one after the other while requests go on. Each count
// is right, but sums of counts may be off by the requests that run at that moment.
type Stats struct {
	Name   string // Options.Name
	State  State
	Mode   Mode
	Since  time.Time // time of the last change of State; zero if there was none
	Reason string    // why State changed, as in Event.Reason; "" if it never did

	// The outcomes in the window. While open or half-open, these are the outcomes that opened the Breaker, unless they
	// have left the window.
	Successes   int64   // quick or slow
	Failures    int64   // quick or slow
	Ignored     int64   // ignored outcomes; always of the last Window
	Slow        int64   // successes and failures that took longer than SlowCall
	FailureRate float64 // Failures / (Successes + Failures); 0 if there are none
	SlowRate    float64 // (Slow + Hung) / (Successes + Failures + Hung); 0 if there are none
	Hung        int64   // calls under way for longer than SlowCall
	Consecutive int64   // failures in a row

	InFlight int64 // admitted calls that have not ended, except probes whose lease has run out
	Probes   int   // of these, probes

	Share      float64   // share of the calls that are admitted: 1 if closed, 0 if open or half-open, between during a ramp
	Reopenings int       // openings not forgotten: the exponent of the next open time
	NextProbe  time.Time // when the open time ends; zero if not open, or forced

	// Counts since the Breaker was made. It does not count admitted calls, because that would slow each of them; the
	// Gate counts them.
	Refused  int64 // calls refused: the sum of ByReason
	ByReason []spillway.Refusal
	Openings map[string]int64 // by the reasons of an Event, such as byFailureRate; nil if there were none
	Stale    int64            // outcomes from before a change of state
	Vetoed   int64            // openings that a Keyed did not allow
	Panics   int64            // of OnEvent
}

// errUnmade is the error of Tune, SetMode and SetState on zero values.
var errUnmade = errors.New("breaker: it must be made by its constructor, got a zero value")

// machineAt returns the machine as it will be at now if no call comes before.
func (b *Breaker) machineAt(now time.Time) machine {
	at := b.instantAt(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.machine.copy()
	m.settle(b.opts.Load(), at)
	return m
}

// instantAt returns now as an instant without making it the base.
func (b *Breaker) instantAt(now time.Time) instant {
	if b.base.time.Load() == nil {
		return 0
	}
	return b.base.instant(now)
}

// Stats returns a snapshot as of now.
func (b *Breaker) Stats() Stats { return b.StatsAt(time.Now()) }

// StatsAt is [Breaker.Stats] at a given time. It changes nothing. A Breaker whose open time is over is [HalfOpen], even
// before the first probe. The zero Breaker is [Open].
func (b *Breaker) StatsAt(now time.Time) Stats {
	if b.phase.Load() == nil {
		return Stats{State: Open, Reason: reasonZero}
	}
	m, at := b.machineAt(now), b.instantAt(now)
	o, p := b.opts.Load(), b.phase.Load()
	c := b.counts(p, at)
	s := Stats{
		Successes: c.successes, Failures: c.failures, Ignored: c.ignored, Slow: c.slow,
		Name:  o.Name,
		State: m.state, Mode: m.mode, Since: b.base.at(m.since), Reason: m.reason,
		Consecutive: b.streak.Load(),
		InFlight:    b.ring.allInFlight() + int64(len(m.leases)),
		Probes:      len(m.leases),
		Reopenings:  m.openingsAt(o, at),
		Stale:       b.stale.Load(),
		Vetoed:      b.vetoed.Load(),
		Panics:      b.panics.Load(),
		Openings:    b.opened.byReason(),
	}
	if m.state == Open {
		s.NextProbe = b.base.at(m.deadline)
	}
	if o.SlowCall > 0 && m.state == Closed {
		s.Hung = b.hung(p, o, at)
	}
	s.Share = float64(p.share(at)) / 100
	for why := range b.refused {
		if n := b.refused[why].Value(); n > 0 {
			s.ByReason = append(s.ByReason, spillway.Refusal{Policy: s.Name, Reason: refusalReasons[why], Count: n})
			s.Refused += n
		}
	}
	total := s.Successes + s.Failures
	s.FailureRate = share(s.Failures, total)
	s.SlowRate = share(s.Slow+s.Hung, total+s.Hung)
	return s
}

func share(n, total int64) float64 {
	if total == 0 {
		return 0
	}
	return float64(n) / float64(total)
}

// SetMode makes a mode take effect at now. Every change of mode begins with an empty window and nothing remembered, in the
// state [Open] for [ForcedOpen], otherwise [Closed]; outcomes of calls under way become stale. Setting the current mode again
// changes nothing. SetMode returns an error if there is no such mode.
func (b *Breaker) SetMode(now time.Time, mode Mode) error {
	switch mode {
	case Auto, ForcedOpen, ForcedClosed, MetricsOnly:
	default:
		return fmt.Errorf("breaker: SetMode: mode must be auto, forced-open, forced-closed or metrics-only, got %q", mode)
	}
	return b.byHand(now, func(m *machine, _ *Options, at instant) {
		if m.mode != mode {
			m.setMode(at, mode)
		}
	})
}

// SetState opens, half-opens or closes the Breaker at now, in mode [Auto]. After that, outcomes decide again. Outcomes
// of calls under way become stale.
//
//   - [Open]: no call goes through for d, up to one year, and then probes decide. If d is 0, it is the next open time
//     by the Options. It does not lengthen later open times.
//   - [HalfOpen]: the next calls are probes.
//   - [Closed]: the Breaker is like a new one, with nothing counted or remembered.
//
// SetState returns an error if there is no such state, and if d is negative, longer than a year, or not 0 with another state
// than Open.
func (b *Breaker) SetState(now time.Time, state State, d time.Duration) error {
	switch {
	case state != Closed && state != HalfOpen && state != Open:
		return fmt.Errorf("breaker: SetState: state must be closed, half-open or open, got %q", state)
	case d < 0 || d > maxDuration || d != 0 && state != Open:
		return fmt.Errorf("breaker: SetState: d must be 0, or for the state open at most a year, got %v for %v", d, state)
	}
	return b.byHand(now, func(m *machine, o *Options, at instant) { m.setState(o, at, state, d) })
}

// byHand lets an operator change the machine at now.
func (b *Breaker) byHand(now time.Time, change func(*machine, *Options, instant)) error {
	if b.phase.Load() == nil {
		return errUnmade
	}
	b.mu.Lock()
	defer b.unlock()
	at, o := b.base.instant(now), b.opts.Load()
	b.machine.settle(o, at)
	change(&b.machine, o, at)
	b.publish(at)
	return nil
}

// Options returns the current options, with every default filled in. Change them and pass them to [Breaker.Tune]. The
// zero Breaker has none.
func (b *Breaker) Options() Options {
	if o := b.opts.Load(); o != nil {
		return *o
	}
	return Options{}
}

// Tune replaces all options while calls go on: a zero field means its default, as in [New]. The state, the window and the
// calls under way stay, and so do an open time and leases that have begun. Name, Window, Buckets, WindowCalls and Seed cannot
// change: each must be zero or the one given to New. Tune returns an error that names the invalid field, and then changes
// nothing.
func (b *Breaker) Tune(o Options) error {
	if b.phase.Load() == nil {
		return errUnmade
	}
	b.mu.Lock()
	defer b.unlock()
	opts, err := b.Check(o)
	if err != nil {
		return err
	}
	b.opts.Store(&opts)
	b.phase.Store(b.newPhase(longAgo))
	return nil
}

// Check returns the options that Tune would put in force, with every default filled in, or the error of Tune. It changes
// nothing.
func (b *Breaker) Check(o Options) (Options, error) {
	old := b.opts.Load()
	if old == nil {
		return o, errUnmade
	}
	if err := o.keep(old); err != nil {
		return o, err
	}
	opts, err := o.withDefaults()
	if err != nil {
		return opts, err
	}
	if most := b.ring.longestHang(); opts.SlowCall > most {
		return opts, fmt.Errorf("breaker: Tune: SlowCall must be at most %v for the Window given to New, got %v", most, opts.SlowCall)
	}
	return opts, nil
}

// keep takes over the fields that cannot be tuned.
func (o *Options) keep(old *Options) (err error) {
	if o.Name, err = name.Keep("breaker", old.Name, o.Name); err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	return cmp.Or(
		keepField("breaker: Tune: Window", &o.Window, old.Window),
		keepField("breaker: Tune: Buckets", &o.Buckets, old.Buckets),
		keepField("breaker: Tune: WindowCalls", &o.WindowCalls, old.WindowCalls),
		keepField("breaker: Tune: Seed", &o.Seed, old.Seed),
	)
}

// keepField sets a field that cannot be tuned to its old value. The error says that the field is neither zero nor old.
func keepField[T comparable](field string, given *T, old T) error {
	var zero T
	if *given != zero && *given != old {
		return fmt.Errorf("%s cannot change from %v, got %v", field, old, *given)
	}
	*given = old
	return nil
}

// longestHang returns the greatest age of a call that the ring can measure, with a window beyond it.
func (g *ring) longestHang() time.Duration {
	slots := min(g.size-g.buckets-2, math.MaxInt64/int64(g.span))
	return time.Duration(slots) * time.Duration(g.span)
}
