package shedder

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway/shedder/internal/law"
	"github.com/spillway-go/spillway/stats"
)

// ErrStale is the error in [Stats] while a sensor repeats a sample that is more than 3 s old. Its reading then counts
// as unknown.
var ErrStale = errors.New("shedder: the last sample is too old")

// ErrImplausible is the error in [Stats] while a reading of a sensor cannot be right: a CPU usage that is not a share,
// a negative wait, or long waits of goroutines although the CPU is idle and requests are fast. The reading then does
// not count.
var ErrImplausible = errors.New("shedder: the sample cannot be true")

const (
	staleAfter = 3 * time.Second // age above which a sample no longer counts
	shareSpan  = 1.0             // seconds over which the share of refusals is measured for MaxShed
	probeEvery = time.Second     // time without an ended request before one more is admitted, and between two such admissions
)

func panicked(p any) error { return fmt.Errorf("shedder: sampler panicked: %v", p) }

// sampleCPU returns the sample of the CPU sampler, with an error if it panics or the sample is stale. A sample without
// a time is never stale.
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

// known reports whether a sample has a usage. The sample of a stand-in may have neither a usage nor an error.
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

// mostShare is the greatest plausible usage. A sampler that divides by its own limit may be a little above 1; a sampler
// that returns percent is far above.
const mostShare = 2

func isShare(x float64) bool { return x >= 0 && x <= mostShare }

// A witness compares the waits that a sensor reports with their expected effects. If goroutines wait for a processor,
// requests take longer than in a calm service, or the CPU is busy.
type witness struct {
	inside, ended float64 // in flight, and requests that end per second: their quotient is the latency (Little)
	spare         float64 // share of the CPU that is idle; a new witness counts as busy
	doubted       float64 // seconds without an effect of the waits, minus seconds with one
	asks          bool    // requests yield once, so that a wait for a processor shows in their latency
}

const (
	witnessSpan = 0.3 // seconds over which requests are looked at
	witnessCPU  = 2.0 // the same for the CPU: even a healthy CPU may be busy for a second by chance
	witnessBusy = 0.9 // usage above which waits count, whatever the latency of requests
	doubtAfter  = 1.0 // seconds of doubt after which the sensor counts as broken
)

// doubts lowers the wait of r to the delay that requests show, where calm is their latency without overload. It reports
// whether the sensor has been implausible for a while.
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
	// Over about the last second: all requests, refused requests, and requests that would have been refused without the
	// leak.
	all, refused, refusable float64
}

// passes reports whether the leak admits the request that arrived at now, in ns, although the limit refuses it.
func (l *leak) passes(now int64) bool {
	if !l.hit(now + 1) { // another draw than the one that drops
		return false
	}
	l.leaked.Add(1)
	return true
}

// observe takes the counts of admissions and refusals since New. It returns the share of refusals to admit, so that at
// most the share most of all requests is refused; most 0 means no bound. It makes up for past excess refusals.
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

// A prober admits one more request beyond the limit if the limit is reached and no request ends. It finds out whether
// the resource that the others wait for has recovered.
type prober struct {
	gone   int64     // that had ended at the last tick
	ended  time.Time // when the last request ended, to the precision of ticks
	probed time.Time
	limit  int64 // least limit to publish; 0 means none
	probes int64
}

// observe returns the least limit to publish. If requests take longer than a second, it waits for twice their latency.
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
