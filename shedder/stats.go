package shedder

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/enum"
	"github.com/spillway-go/spillway/internal/name"
	"github.com/spillway-go/spillway/shedder/internal/law"
	"github.com/spillway-go/spillway/stats"
)

// Stats is a snapshot of the state of a [Shedder]. The counts and InFlight are current. The other fields are from the
// last tick, at most 20 ms before the last request.
type Stats struct {
	Name string    // Options.Name
	Time time.Time // of the last tick; zero before the first request

	CPU        float64       // raw usage as a share of what the process may use, 0..1
	CPUSmooth  float64       // the same, smoothed
	CPUErr     error         // why the CPU is unknown; nil if it is known
	CPUSource  string        // where the readings come from
	QueueDelay time.Duration // how long goroutines wait for a processor; negative if unknown
	SchedErr   error         // why QueueDelay is unknown; nil if it is known
	QuotaPause time.Duration // how long a CPU quota stops the process in each of its periods; 0 if it does not

	Overloaded bool      // the limit for a short CPU is active
	Reason     Reason    // why
	Signal     string    // name of the first of Options.Signals that is at its threshold, whatever Reason says; "" if none is
	SignalErr  error     // the errors of signals that could not be read and so count as calm; nil if all were read
	Since      time.Time // since when Overloaded is what it is

	Limit    float64 // greatest number in flight; +Inf while there is none
	Drop     float64 // share of requests that is refused at random because they wait for a processor
	InFlight int64
	MaxPass  float64       // greatest rate of answers over one latency within the window, per second
	MinRT    time.Duration // latency while the service is calm; 0 if not learnt yet

	// Demand is the offered load as a multiple of what the process can carry: below 1 it is calm, and 2 is twice too much.
	// It is the greatest of CPUSmooth over Options.CPUThreshold, InFlight over Limit while Overloaded, and, while requests
	// are refused, requests over admitted requests in the last seconds. It is at most 100. Scale on it rather than on the
	// CPU, which refusals keep at its threshold.
	Demand float64

	// FairShare is the rate in requests per second above which a key of weight 1 is refused for the sake of other keys of
	// its priority; +Inf while none is.
	FairShare float64

	// RouteShare is the busy time per second above which a route is refused for the sake of other routes of its priority, in
	// requests at work: 2.5 is as much as two and a half requests at any time keep busy. It is +Inf while none is.
	RouteShare float64
	Routes     int // routes that have a share of their own, because of Options.FairRoutes

	// HoldBack is the share of the requests of priority HoldBackAt that clients should not send, and nothing of lower
	// priorities, so that little more arrives than the service can answer. It is 0 while clients may send everything, and
	// at most 0.95. It follows how clients react. The adapters pass it on (httpgate.Options.TellClients).
	HoldBack   float64
	HoldBackAt spillway.Priority

	Leak   float64 // share of refusals that is admitted because of Options.MaxShed
	Leaked int64   // requests that have passed so since New
	Probes int64   // how often one more request was admitted beyond the limit because no request had ended

	Waiting   int64 // requests that wait for room now, with Options.MaxQueue
	Waited    int64 // admitted requests that had to wait, since New
	Cancelled int64 // requests whose ctx ended when they had to wait, since New

	Waits        stats.Distribution // time in seconds that requests waited and were admitted
	RefusedAfter stats.Distribution // time in seconds that requests waited and were refused

	Admitted int64 // requests admitted since New, except those that a later policy refused
	Refused  int64 // requests refused since New: the sum of ByReason, and of the counts by priority
	ByReason []spillway.Refusal
	// Admitted and Refused by priority: below Normal, Normal, above Normal.
	AdmittedSheddable, AdmittedNormal, AdmittedCritical int64
	RefusedSheddable, RefusedNormal, RefusedCritical    int64
}

// Stats returns a snapshot. It may be called at any time and is cheap.
func (s *Shedder) Stats() Stats {
	v := *s.view.Load()
	v.Name, v.Leaked = s.refusals[byLimit].Load().Policy, s.leak.leaked.Value()
	v.InFlight, v.Admitted = s.inside.Totals()
	if s.queue != nil {
		s.queue.stats(&v)
	}
	var counts [numClasses][numReasons]int64
	for class := range counts {
		for why := range counts[class] {
			counts[class][why] = s.refused[class][why].Value()
		}
	}
	for why, reason := range refusalReasons {
		if n := counts[sheddable][why] + counts[normal][why] + counts[critical][why]; n > 0 {
			v.ByReason = append(v.ByReason, spillway.Refusal{Policy: v.Name, Reason: reason, Count: n})
			v.Refused += n
		}
	}
	v.AdmittedSheddable, v.AdmittedCritical = max(0, s.admitted[sheddable].Value()), max(0, s.admitted[critical].Value())
	v.AdmittedNormal = max(0, v.Admitted-v.AdmittedSheddable-v.AdmittedCritical)
	v.RefusedSheddable, v.RefusedNormal, v.RefusedCritical = sum(counts[sheddable]), sum(counts[normal]), sum(counts[critical])
	return v
}

func sum(counts [numReasons]int64) (all int64) {
	for _, n := range counts {
		all += n
	}
	return all
}

// MarshalJSON returns the fields of s by name, in which a Limit, a FairShare or a RouteShare of +Inf is null. Errors are their
// text, or null.
func (s Stats) MarshalJSON() ([]byte, error) {
	type plain Stats
	out := struct {
		plain
		Limit, FairShare, RouteShare *float64 // null is none
		CPUErr, SchedErr, SignalErr  *string
	}{plain: plain(s), CPUErr: text(s.CPUErr), SchedErr: text(s.SchedErr), SignalErr: text(s.SignalErr)}
	if !math.IsInf(s.Limit, 1) {
		out.Limit = &s.Limit
	}
	if !math.IsInf(s.FairShare, 1) {
		out.FairShare = &s.FairShare
	}
	if !math.IsInf(s.RouteShare, 1) {
		out.RouteShare = &s.RouteShare
	}
	return json.Marshal(out) //nolint:wrapcheck,musttag // package json calls this; the names of the fields are the keys
}

func text(err error) *string {
	if err == nil {
		return nil
	}
	t := err.Error()
	return &t
}

// A Reason says why a [Shedder] refuses.
type Reason uint8

// The reasons.
const (
	Calm       = Reason(law.Calm)   // it does not
	Full       = Reason(law.Full)   // more requests are in flight than the service answers within its calm latency
	CPUHigh    = Reason(law.CPU)    // the CPU is short
	SignalHigh = Reason(law.Signal) // one of Options.Signals is at its threshold; Stats.Signal names it
)

// String returns the name of r in lower case, fit for a metric label.
func (r Reason) String() string { return enum.String(reasonKind, reasonNames, r) }

// MarshalText returns r.String(), or an error if there is no such reason.
func (r Reason) MarshalText() ([]byte, error) { return enum.Marshal(reasonKind, reasonNames, r) }

// UnmarshalText reads the text of [Reason.String].
func (r *Reason) UnmarshalText(text []byte) error {
	return enum.Unmarshal(reasonKind, reasonNames, r, text)
}

const reasonKind = "shedder: Reason"

var reasonNames = []string{Calm: "calm", Full: "full", CPUHigh: "cpu", SignalHigh: "signal"}

// Why returns the reason as text, fit for a metric label. If [Reason] is [SignalHigh], it is the name of the signal, or
// "signal" while the limit still holds for [Options.CoolDown] after it.
func (s Stats) Why() string {
	if s.Reason == SignalHigh && s.Signal != "" {
		return s.Signal
	}
	return s.Reason.String()
}

// snapshot publishes the findings of this tick, partly taken from v.
func (s *Shedder) snapshot(r *law.Reading, d law.Verdict, v Stats) {
	was := s.view.Load()
	v.CPU, v.CPUSmooth, v.QueueDelay, v.QuotaPause = r.CPU, r.Smoothed, -1, s.seen.pause
	if v.SchedErr == nil {
		v.QueueDelay = time.Duration(r.Wait * 1e9)
	}
	v.Reason = Reason(d.Reason)
	v.Overloaded = d.Reason != law.Calm
	if v.Overloaded != was.Overloaded {
		s.seen.since = v.Time
	}
	v.Since, v.Limit, v.Drop, v.FairShare = s.seen.since, d.Limit, d.Drop, s.levels.FairShare()
	v.RouteShare, v.Routes = s.levels.RouteShare(), s.levels.Routes()
	v.MaxPass, v.MinRT, v.Probes = s.law.Pass(), s.law.Latency(), s.prober.probes
	s.view.Store(&v)
}

// Cost returns how long a request of a route takes in the calm service, or 0 if that is not known: without
// [Options.FairRoutes], before the first 16 successes in a calm time, and beyond 256 routes.
func (s *Shedder) Cost(route string) time.Duration { return s.levels.Cost(route) }

// Options returns the current options, with every default filled in. Change them and pass them to [Shedder.Tune].
func (s *Shedder) Options() Options {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.opts
	o.Signals, o.Weights = slices.Clone(o.Signals), maps.Clone(o.Weights)
	return o
}

// Learnt returns what a later process may begin with, by [Shedder.Resume]: the rate of answers per second, and the typical
// latency. Both are 0 as long as either is unknown.
func (s *Shedder) Learnt() (rate float64, latency time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rate, latency = s.law.Rate(), s.law.Latency(); rate == 0 || latency == 0 {
		return 0, 0
	}
	return rate, latency
}

// Resume begins with what an earlier process has learnt about the same service, as [Shedder.Learnt] returned it. So a restart
// straight into an overload has a limit from the first request on. Values that have become wrong are corrected like others: the
// rate within Window, the latency as docs/algorithms.md says. Call Resume before the first request. The rate is in
// requests per second, and the latency is at most an hour. If one of them is 0, nothing changes. The error names the invalid value.
func (s *Shedder) Resume(rate float64, latency time.Duration) error {
	switch {
	case !(rate >= 0) || math.IsInf(rate, 1):
		return fmt.Errorf("shedder: Resume: rate must be a number of requests per second, or 0, got %v", rate)
	case latency < 0 || latency > time.Hour:
		return fmt.Errorf("shedder: Resume: latency must be 0 to 1h, got %v", latency)
	case rate == 0 || latency == 0:
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.law.Resume(rate, latency.Seconds())
	return nil
}

// Tune replaces all options while requests go on: a zero field means its default, as in [New]. Name, CPU and
// Sched cannot change: each must be zero or the current value. Tune returns an error that names the invalid field, and then
// changes nothing.
func (s *Shedder) Tune(o Options) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	opts, err := s.next(o)
	if err == nil {
		s.install(opts)
	}
	return err
}

// Check returns the options that Tune would put in force, with every default filled in, or the error of Tune. It changes
// nothing.
func (s *Shedder) Check(o Options) (Options, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next(o)
}

// next returns the options that replace those in force. The caller holds the lock.
func (s *Shedder) next(o Options) (Options, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return opts, err
	}
	if opts.Name, err = name.Keep("shedder", s.opts.Name, o.Name); err != nil {
		return opts, err //nolint:wrapcheck // it names the field
	}
	if err := s.keepsQueue(&opts); err != nil {
		return opts, err
	}
	switch {
	case replaces(o.CPU, s.opts.CPU):
		return opts, errors.New("shedder: Tune: CPU cannot change: it must be nil or the present one")
	case replaces(o.Sched, s.opts.Sched):
		return opts, errors.New("shedder: Tune: Sched cannot change: it must be nil or the present one")
	}
	opts.CPU, opts.Sched = s.opts.CPU, s.opts.Sched
	return opts, nil
}

// replaces reports whether given is another sensor than present. Two values of a type that cannot be compared count as the
// same one.
func replaces(given, present any) bool {
	if given == nil {
		return false
	}
	return reflect.TypeOf(given) != reflect.TypeOf(present) || reflect.ValueOf(given).Comparable() && given != present
}
