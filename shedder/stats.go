package shedder

import (
	"slices"
	"time"
)

// Stats is a snapshot of what a [Shedder] believes. The counts and InFlight are of this moment, the rest of the last
// tick, at most 20 ms before the last request.
type Stats struct {
	Time time.Time // of the last tick; zero before the first request

	CPU        float64       // raw usage as a share of what the process may use, 0..1
	CPUSmooth  float64       // the same, smoothed
	CPUErr     error         // why the CPU is unknown; nil if it is known
	CPUSource  string        // where the readings come from
	QueueDelay time.Duration // how long goroutines wait for a processor; negative if unknown
	SchedErr   error         // why QueueDelay is unknown; nil if it is known
	QuotaPause time.Duration // how long a CPU quota stops the process in each of its periods; 0 if it does not

	Overloaded bool      // the limit is in force
	Reason     Reason    // why
	Signal     string    // name of the first of Options.Signals that is at its threshold, whatever Reason says; "" if none is
	SignalErr  error     // what keeps signals from being read, each of which counts as calm; nil if all were
	Since      time.Time // since when Overloaded is what it is

	Limit    float64 // greatest number in flight; +Inf while not overloaded
	Pace     float64 // greatest number of admissions per second; +Inf while requests do not queue before the Shedder
	InFlight int64
	MaxPass  float64       // greatest rate of successes in a bucket of the window, per second
	MinRT    time.Duration // latency of an undisturbed request; 0 if not learnt yet
	MaxDelay time.Duration // that of Options, or what follows from its SLO
	Gain     float64       // what MaxPass × MinRT is multiplied by to yield Limit; 0 while it is not in force

	Leak   float64 // share of refusals that passes for the sake of Options.MaxShed
	Leaked int64   // requests that have passed so since New
	Probes int64   // times that one more was let in beyond the limit because nothing had ended

	Refused int64 // requests refused since New, of all priorities
	// The refusals by priority: below Normal, Normal, above Normal.
	RefusedSheddable, RefusedNormal, RefusedCritical int64
}

// Stats returns a snapshot. It may be called at any time, is cheap and allocates nothing.
func (s *Shedder) Stats() Stats {
	v := *s.view.Load()
	v.InFlight, v.Leaked = s.inside.size(), s.leak.leaked.Value()
	v.RefusedSheddable = s.refused[sheddable].Value()
	v.RefusedNormal = s.refused[normal].Value()
	v.RefusedCritical = s.refused[critical].Value()
	v.Refused = v.RefusedSheddable + v.RefusedNormal + v.RefusedCritical
	return v
}

// Why returns the reason as text, fit for a metric label: the name of the signal if [Reason] is [SignalHigh].
func (s Stats) Why() string {
	if s.Reason == SignalHigh {
		return s.Signal
	}
	return s.Reason.String()
}

// snapshot publishes what this tick has found, and what of it stands in v already.
func (s *Shedder) snapshot(r *reading, v Stats) {
	c := &s.control
	v.Time, v.CPU, v.CPUSmooth, v.QueueDelay, v.QuotaPause = r.now, r.cpu, r.smoothed, r.wait, r.pause
	v.Overloaded, v.Reason, v.Signal, v.Since = c.overloaded, c.reason, r.signal, c.since
	v.Limit, v.Pace, v.MaxPass, v.MinRT = c.out.limit, c.out.pace, r.pass, time.Duration(r.rt)
	v.Probes, v.MaxDelay = s.prober.probes, c.opts.MaxDelay
	if base := r.pass * r.rt / 1e9; c.overloaded && base > 0 {
		v.Gain = c.out.limit / base
	}
	s.view.Store(&v)
}

// Options returns the options in force, with every default filled in. Change them and give them to [Shedder.Tune].
func (s *Shedder) Options() Options {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.opts
	o.Signals = slices.Clone(o.Signals)
	return o
}

// Tune replaces the options while requests go on. Zero fields get their defaults, as in [New]; the sensors and the logger
// stay what they are. An error names the field that cannot be right, and changes nothing.
func (s *Shedder) Tune(o Options) error {
	opts, err := o.withDefaults()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	opts.CPU, opts.Sched, opts.Logger = s.opts.CPU, s.opts.Sched, s.opts.Logger
	return s.install(opts)
}
