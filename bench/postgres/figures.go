package main

import (
	"math"
	"slices"
	"time"

	"github.com/spillway-go/spillway/lab/overload"
)

// A result is one guard at one mix, load and fault. Goodput is a fraction of the capacity; other shares are fractions of
// the requests sent. A field that is nil is not known.
type result struct {
	Guard string  `json:"guard"`
	Mix   string  `json:"mix"`
	Load  float64 `json:"load"`
	Fault string  `json:"fault"` // "", "cold start", "stop", "restart" or "lock"

	Goodput   float64  `json:"goodput"`
	OfBest    *float64 `json:"of_best"` // goodput over the goodput of the best fixed limit
	P50       *float64 `json:"p50_ms"`
	P99       *float64 `json:"p99_ms"`      // of the answered
	P99OfBest *float64 `json:"p99_of_best"` // over the lowest p99 among the fixed limits that keep 0.97 of the best goodput
	Refused   float64  `json:"refused"`
	Timeouts  float64  `json:"timeouts"`
	Failed    float64  `json:"failed"`
	DeadS     float64  `json:"dead_s"`

	GoodputLast float64  `json:"goodput_last"` // the same over the last half
	RefusedP99  *float64 `json:"refused_p99_ms"`
	LagP99      float64  `json:"lag_p99_ms"`   // how late the clients were
	Capacity    float64  `json:"capacity_rps"` // of the bare app, measured just before
	DatabaseCPU float64  `json:"database_cpu"` // CPUs that the database used during the load
	BestFixed   string   `json:"best_fixed,omitempty"`
	P99Fixed    string   `json:"p99_fixed,omitempty"` // the limit that P99OfBest compares with
	SLO         float64  `json:"slo_ms,omitempty"`
	WithinSLO   *float64 `json:"within_slo,omitempty"` // of the answered

	Served map[string]float64 `json:"served"` // share of the requests of each route that got useful answers
	Passes []float64          `json:"pass_goodput"`
}

// fixedShare is the share of the best goodput that a fixed limit has to keep to count for the p99.
const fixedShare = 0.97

// between returns the samples that were sent in [from, to).
func between(samples []sample, from, to time.Duration) (out []sample) {
	for _, s := range samples {
		if s.at >= from && s.at < to {
			out = append(out, s)
		}
	}
	return out
}

// measure computes the client figures of r from the samples sent in [from, to).
func (r *result) measure(samples []sample, from, to time.Duration, capacity float64) {
	sent := between(samples, from, to)
	var counts [unsent + 1]float64
	var latencies, refusals, lags []time.Duration
	good, goodLast, within := 0.0, 0.0, 0.0
	var came, served [routeCount]float64
	half := from + (to-from)/2
	for _, s := range sent {
		counts[s.kind]++
		came[s.route]++
		lags = append(lags, s.lag)
		if s.kind == refused {
			refusals = append(refusals, s.latency)
		}
		if s.kind == answered {
			latencies = append(latencies, s.latency)
			if millis(s.latency) <= r.SLO {
				within++
			}
		}
		if s.useful() {
			good++
			served[s.route]++
			if s.at >= half {
				goodLast++
			}
		}
	}
	all := max(1, float64(len(sent)))
	r.Goodput = good / (to - from).Seconds() / capacity
	r.GoodputLast = goodLast / (to - half).Seconds() / capacity
	r.Refused, r.Timeouts, r.Failed = counts[refused]/all, counts[timeout]/all, (counts[failed]+counts[unsent])/all
	r.P50, r.P99, r.RefusedP99 = quantile(latencies, 0.5), quantile(latencies, 0.99), quantile(refusals, 0.99)
	if lag := quantile(lags, 0.99); lag != nil {
		r.LagP99 = *lag
	}
	r.Served = map[string]float64{}
	for i, name := range routeNames() {
		if came[i] > 0 {
			r.Served[name] = served[i] / came[i]
		}
	}
	if r.SLO > 0 && len(latencies) > 0 {
		r.WithinSLO = overload.Known(within / float64(len(latencies)))
	}
}

// quantile returns the q-quantile in milliseconds by the nearest rank, or nil if there are no samples.
func quantile(d []time.Duration, q float64) *float64 {
	if len(d) == 0 {
		return nil
	}
	d = slices.Sorted(slices.Values(d))
	rank := min(max(int(math.Ceil(q*float64(len(d))))-1, 0), len(d)-1)
	return overload.Known(millis(d[rank]))
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// The resolution of dead time.
const (
	grain       = 50 * time.Millisecond
	deadWindow  = 250 * time.Millisecond // less than that is chance
	deadShare   = 0.1                    // a window with less than this share of the expected useful answers is dead
	aliveWindow = 500 * time.Millisecond
	aliveShare  = 0.9
)

// arrivals returns when useful answers came, in order.
func arrivals(samples []sample) (times []time.Duration) {
	for _, s := range samples {
		if s.useful() {
			times = append(times, s.at+s.latency)
		}
	}
	slices.Sort(times)
	return times
}

// count returns how many of the sorted times are in [from, to).
func count(times []time.Duration, from, to time.Duration) float64 {
	first, _ := slices.BinarySearch(times, from)
	last, _ := slices.BinarySearch(times, to)
	return float64(last - first)
}

// longestDead returns the longest stretch of [from, to] without useful answers, in seconds. It looks at windows of 250
// ms, one every 50 ms; a dead window has less than a tenth of rate answers per second.
func longestDead(times []time.Duration, from, to time.Duration, rate float64) float64 {
	longest, begin := time.Duration(0), time.Duration(-1)
	for t := from; t+deadWindow <= to; t += grain {
		if count(times, t, t+deadWindow) >= deadShare*rate*deadWindow.Seconds() {
			begin = -1
			continue
		}
		if begin < 0 {
			begin = t
		}
		longest = max(longest, t+deadWindow-begin)
	}
	return longest.Seconds()
}

// untilGood returns the seconds from back until useful answers come at nine tenths of rate per second, for half a
// second. If that does not happen before to, it returns the whole time.
func untilGood(times []time.Duration, back, to time.Duration, rate float64) float64 {
	for t := back; t+aliveWindow <= to; t += grain {
		if count(times, t, t+aliveWindow) >= aliveShare*rate*aliveWindow.Seconds() {
			return (t - back).Seconds()
		}
	}
	return max(0, to-back).Seconds()
}

// median returns the median of some figures, the lower one if their number is even.
func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[(len(all)-1)/2]
}

// medianOf is median for figures that may be missing. Missing figures count as the worst.
func medianOf(all []*float64) *float64 {
	var known []float64
	for _, x := range all {
		if x == nil {
			known = append(known, math.Inf(1))
		} else {
			known = append(known, *x)
		}
	}
	m := median(known)
	if math.IsInf(m, 1) {
		return nil
	}
	return &m
}

// best returns the best of some fixed limits, and the limit with the lowest p99 among those that keep fixedShare of its
// goodput. Both are nil if there are none.
func best(fixed []*result) (goodput, p99 *result) {
	for _, r := range fixed {
		if goodput == nil || r.Goodput > goodput.Goodput {
			goodput = r
		}
	}
	for _, r := range fixed {
		if r.P99 != nil && r.Goodput >= fixedShare*goodput.Goodput && (p99 == nil || *r.P99 < *p99.P99) {
			p99 = r
		}
	}
	return goodput, p99
}
