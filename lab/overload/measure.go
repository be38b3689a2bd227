package overload

import "time"

// stretch is a span with the requests that were sent in it.
type stretch struct {
	Span
	from, to time.Duration
	samples  []sample
}

// result reduces one load to its figures. next is the stretch after it, to find the recovery. before holds the
// latencies of the unloaded server at the beginning. Both may be nil.
func (l *stretch) result(guard string, capacity float64) Result {
	last := between(l.samples, l.from+(l.to-l.from)/2, l.to)
	all := between(l.samples, l.from, l.to)
	r := Result{
		Guard: guard, Load: l.Load, Offered: float64(all.sent) / (l.to - l.from).Seconds(),

		Goodput:    l.goodput(l.from+(l.to-l.from)/2, l.to, capacity),
		P50:        quantile(last.latencies, 0.5),
		P99:        quantile(last.latencies, 0.99),
		RefusedP99: quantile(last.refusals, 0.99),
		Shed:       last.share(last.refused),
		Timeouts:   last.share(last.timeouts),
		Failed:     last.share(last.failed),

		GoodputAll:    l.goodput(l.from, l.to, capacity),
		Goodput1s:     l.goodput(l.from, min(l.from+time.Second, l.to), capacity),
		Goodput5s:     l.goodput(l.from, min(l.from+5*time.Second, l.to), capacity),
		P99All:        quantile(all.latencies, 0.99),
		RefusedP99All: quantile(all.refusals, 0.99),
		ShedAll:       all.share(all.refused),
		TimeoutsAll:   all.share(all.timeouts),

		Unsent: all.unsent, Start: l.Start, End: l.End, Fresh: l.Fresh,
	}
	if lag := quantile(all.lags, 0.99); lag != nil {
		r.SendLagP99 = *lag
	}
	l.firsts(&r)
	return r
}

// goodput returns the useful answers per second to requests sent in [from, to), as a fraction of the capacity.
func (l *stretch) goodput(from, to time.Duration, capacity float64) float64 {
	if to <= from || capacity <= 0 {
		return 0
	}
	f := between(l.samples, from, to)
	return float64(f.good) / (to - from).Seconds() / capacity
}

func (l *stretch) firsts(r *Result) {
	for i := range l.samples {
		s := &l.samples[i]
		if s.kind == refused {
			if at := (s.at + s.latency - l.from).Seconds(); r.FirstRefusal == nil || at < *r.FirstRefusal {
				r.FirstRefusal = &at
			}
		} else if r.FirstMiss == nil && !s.good() {
			r.FirstMiss = Known((s.at - l.from).Seconds())
		}
	}
}

// The tolerance of "as before".
const (
	recoverySlack = 1.25
	recoveryFloor = 10 * time.Millisecond
	recoveryBad   = 0.01
	recoveryTail  = time.Second // minimum time left at the end to judge by
)

// recovered returns how long it took, from the beginning of rest, a stretch of light load after a heavy one, until everything
// was as before. From then to the end of rest, the p99 is at most a quarter or 10 ms above before, and at most 1 % of the
// requests were refused or not answered. It returns nil if that never happened.
func (l *stretch) recovered(before time.Duration) *float64 {
	bound := max(time.Duration(float64(before)*recoverySlack), before+recoveryFloor)
	for from := l.from; from+recoveryTail <= l.to; from += bucket {
		f := between(l.samples, from, l.to)
		if len(f.latencies) == 0 || f.share(f.sent-f.answered) > recoveryBad {
			continue
		}
		if p99 := quantile(f.latencies, 0.99); time.Duration(*p99*float64(time.Millisecond)) <= bound {
			return Known((from - l.from).Seconds())
		}
	}
	return nil
}
