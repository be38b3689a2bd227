package shedder

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway/shedder/internal/law"
	"github.com/spillway-go/spillway/stats"
)

// ErrStale is the error in [Stats] while a sensor goes on saying what it measured more than 3 s ago. What it says then
// counts as unknown.
var ErrStale = errors.New("shedder: the last sample is too old")

// ErrImplausible is the error in [Stats] while a sensor says what cannot be: a CPU usage that is no share, a wait that is negative,
// or waits of goroutines that neither the CPU nor the latency of requests shows. What it says then does not count.
var ErrImplausible = errors.New("shedder: the sample cannot be true")

const (
	staleAfter = 3 * time.Second // age from which on a sample is no longer believed
	shareSpan  = 1.0             // seconds over which the share of refusals is taken for MaxShed
	probeEvery = time.Second     // how long nothing ends before one more is let in, and then between two of them
)

func panicked(p any) error { return fmt.Errorf("shedder: sampler panicked: %v", p) }

// sampleCPU is what the CPU sampler says, unless it panics or says what is long past. A sample without a time has no age.
func (s *Shedder) sampleCPU(now time.Time) (out stats.CPUSample) {
	defer func() {
		if p := recover(); p != nil {
			out = stats.CPUSample{Err: panicked(p)}
		}
	}()
	out = s.opts.CPU.Sample(now)
	switch {
	case !known(&out):
	case !isShare(out.Usage) || !isShare(out.Smoothed):
		out.Err = ErrImplausible
	case !out.Time.IsZero() && now.Sub(out.Time) > staleAfter:
		out.Err = ErrStale
	}
	return out
}

// known reports whether a sample has a usage. That of a stand-in may have none and no error either.
func known(s *stats.CPUSample) bool { return s.Err == nil && s.Samples > 0 }

// sampleSched does the same with the waits of goroutines.
func (s *Shedder) sampleSched(now time.Time) (out stats.SchedSample) {
	defer func() {
		if p := recover(); p != nil {
			out = stats.SchedSample{Err: panicked(p)}
		}
	}()
	out = s.opts.Sched.Sample(now)
	switch {
	case out.Err != nil:
	case out.Value < 0:
		out.Err = ErrImplausible
	case !out.Time.IsZero() && now.Sub(out.Time) > staleAfter:
		out.Err = ErrStale
	}
	return out
}

// mostShare is the greatest usage that is believed: a sampler that divides by a limit of its own may be a little above 1, and one
// that says percent is far above.
const mostShare = 2

func isShare(x float64) bool { return x >= 0 && x <= mostShare }

// A witness compares the waits that a sensor reports with what they would do. Goroutines that wait for a processor are those of
// requests too: requests then take longer than while the service is calm, or the CPU is in use.
type witness struct {
	inside, ended float64 // in flight, and requests that end per second: their quotient is the latency (Little)
	spare         float64 // share of the CPU that is not in use; a new one counts as busy
	doubted       float64 // seconds for which the waits have not shown, less those for which they have
	asks          bool    // requests yield once, so that a wait for a processor shows in their latency if there is one
}

const (
	witnessSpan = 0.3 // seconds over which requests are looked at
	witnessCPU  = 2.0 // the same for the CPU: by chance alone a healthy one is busy for a second
	witnessBusy = 0.9 // usage from which waits are believed whatever requests show
	doubtAfter  = 1.0 // seconds of doubt after which the sensor counts as broken
)

// doubts brings the wait of r down to what requests show, calm being their latency without overload. It reports whether the
// sensor has said what cannot be for a while.
func (w *witness) doubts(r *law.Reading, calm time.Duration) bool {
	keep := math.Exp(-r.Dt / witnessSpan)
	w.inside = r.InFlight + (w.inside-r.InFlight)*keep
	if r.Dt > 0 {
		rate := r.Ended / r.Dt
		w.ended = rate + (w.ended-rate)*keep
	}
	usage := 0.0
	if r.CPUKnown {
		usage = r.CPU
	}
	w.spare = 1 - usage + (w.spare-(1-usage))*math.Exp(-r.Dt/witnessCPU)
	late := math.Max(0, w.inside-calm.Seconds()*w.ended) / math.Max(w.ended, 1e-3)
	if 1-w.spare >= witnessBusy || r.Wait <= math.Max(late, yieldFrom.Seconds()) {
		w.doubted, w.asks = math.Max(0, w.doubted-r.Dt), false
		return false
	}
	w.asks = true
	if r.Wait > 4*(late+calm.Seconds()) { // shorter waits may be part of a calm latency
		w.doubted = math.Min(w.doubted+r.Dt, 2*doubtAfter)
	}
	if w.doubted >= doubtAfter {
		r.Wait = 0
		return true
	}
	r.Wait = late
	return false
}

// A leak admits some requests that the limit would refuse, so that at most a set share is refused.
type leak struct {
	odds
	leaked stats.Counter // would have been refused, and passed

	// The rest belongs to the tick.
	came, turned, passed int64 // counters as of the last tick
	// Within the last second or so: requests, those that were refused, and those that would have been without the leak.
	all, refused, refusable float64
}

// passes reports whether the request that arrived at now, in ns, passes though it would be refused.
func (l *leak) passes(now int64) bool {
	if !l.hit(now + 1) { // another draw than the one that drops
		return false
	}
	l.leaked.Add(1)
	return true
}

// observe takes in what has been admitted and refused since New, and returns the share of refusals to let pass so that no
// more than most of all requests are refused; most 0 is no bound. What was refused too much is made good.
func (l *leak) observe(dt float64, admitted, refused int64, most float64) float64 {
	leaked := l.leaked.Value()
	came, turned, passed := admitted-l.came, refused-l.turned, leaked-l.passed
	l.came, l.turned, l.passed = admitted, refused, leaked
	keep := math.Exp(-math.Max(dt, 0) / shareSpan)
	l.all = l.all*keep + float64(came+turned)
	l.refused = l.refused*keep + float64(turned)
	l.refusable = l.refusable*keep + float64(turned+passed)
	if most == 0 || l.refusable <= most*l.all {
		return 0
	}
	excess := l.refused - most*l.all
	return min(max(1-(most*l.all-excess)/l.refusable, 0), 1)
}

// A prober admits one more request beyond the limit if the limit is reached and no request ends. It finds out whether what
// the others wait for has healed.
type prober struct {
	gone   int64     // that had ended at the last tick
	ended  time.Time // when the last of them did, as far as ticks tell
	probed time.Time
	limit  int64 // to be published if the limit is less; 0 is none
	probes int64
}

// observe returns the least limit to publish. Where requests take longer than a second, it waits for twice as long as
// they take.
func (p *prober) observe(now time.Time, gone int64, inFlight, limit float64, latency time.Duration) int64 {
	if gone != p.gone || p.ended.IsZero() || inFlight < math.Max(1, math.Floor(limit/2)) {
		p.gone, p.ended, p.limit = gone, now, 0
		return 0
	}
	patience := max(probeEvery, 2*latency)
	if now.Sub(p.ended) >= patience && now.Sub(p.probed) >= probeEvery && int64(inFlight) >= p.limit {
		p.probed, p.limit = now, int64(inFlight)+1
		p.probes++
	}
	return p.limit
}
