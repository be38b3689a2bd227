package sim

import (
	"math"
	"slices"
	"time"
)

// A Result is the outcome of a [Scenario]. Goodput and latencies cover its measured phases. Shares without a
// value are NaN. Durations without a value are the greatest Duration, which stands for never.
type Result struct {
	Scenario string
	Capacity float64 // requests per second

	Goodput        float64       // answers in time, as a share of the capacity
	First5s        float64       // the same over the first five seconds
	Shed           float64       // share of the requests that were refused
	TimedOut       float64       // share of the requests that their clients gave up
	Failed         float64       // share of the requests that were answered with an error
	P50, P99       time.Duration // latency of the served
	RefusedP99     time.Duration // latency of a refusal
	InTime         float64       // share of the calls that were answered in time, in all phases
	RefusedInAll   float64       // share of the requests that were refused, in all phases
	WronglyRefused float64       // share refused in all phases that ask for no more than the capacity
	Converged      time.Duration // from the start of the first measured phase until nine tenths of the possible goodput are kept for 2 s
	Recovered      time.Duration // from the last measured phase's end until less than 1 % is refused for a second
	Amplification  float64       // requests sent for each that clients wanted, in all phases

	Classes []ClassResult
	Hosts   []HostResult
	Series  []Point // every 100 ms
}

// A ClassResult is the part of a [Result] about one class of requests.
type ClassResult struct {
	Name   string
	Served float64       // share of the requests that were answered in time
	P99    time.Duration // latency of the served
}

// A HostResult is the part of a [Result] about one host, in all phases.
type HostResult struct {
	Share   float64 // of all requests that were sent to it
	Refused float64 // share of its requests
	Served  float64 // share of its requests, in time or not
}

// A Point is the record of 100 ms.
type Point struct {
	At                                      time.Duration // its beginning
	Sent, Served, Refused, TimedOut, Failed float64       // per second; Served in time
	Limit                                   float64       // reading of the gate's probe, such as a shedder's limit; NaN without one
	InFlight                                float64       // admitted and not done, over all hosts
}

const binSpan = 100 * time.Millisecond

// A recorder gathers the figures of a Result.
type recorder struct {
	s           *simulation
	from, until time.Duration // of the measured phases
	bins        []Point
	latencies   []time.Duration // of the served, in measured phases
	refusals    []time.Duration
	sentN       int // of the measured
	refusedN    int
	timedOutN   int
	failedN     int
	calm        [2]int // sent and refused in phases below the capacity
	all         [2]int // wanted and sent
	inTime      int    // in all phases, including answers after their end
	refusedAll  int
	classes     map[string]*classRecord
	closed      bool
}

type classRecord struct {
	sent, good int
	served     []time.Duration
}

func (o *recorder) init(s *simulation) {
	o.s = s
	var at time.Duration
	o.from = -1
	for _, p := range s.s.Phases {
		if p.Measured && o.from < 0 {
			o.from = at
		}
		at += p.For
		if p.Measured {
			o.until = at
		}
	}
	if o.from < 0 {
		o.from, o.until = 0, at
	}
	o.classes = map[string]*classRecord{}
	o.bins = make([]Point, at/binSpan+1)
	var sample func()
	sample = func() {
		b := o.bin()
		for _, h := range s.hosts {
			b.InFlight += float64(h.gate.Stats().InFlight)
		}
		s.after(binSpan, sample)
	}
	s.after(0, sample)
}

func (o *recorder) bin() *Point {
	return &o.bins[min(int(o.s.now/binSpan), len(o.bins)-1)]
}

func (o *recorder) measured() bool { return !o.closed && o.s.now >= o.from && o.s.now < o.until }

func (o *recorder) class(c *call) *classRecord {
	r := o.classes[c.class.Name]
	if r == nil {
		r = &classRecord{}
		o.classes[c.class.Name] = r
	}
	return r
}

// isCalm reports whether c was sent in a phase that asks for no more than the capacity.
func (o *recorder) isCalm(c *call) bool {
	p := o.s.s.Phases[c.phase]
	return p.Load <= 1 && (!p.Ramp || p.To <= 1)
}

func (o *recorder) sent(c *call) {
	o.all[1]++
	if c.retries == 0 {
		o.all[0]++
	}
	if o.isCalm(c) {
		o.calm[0]++
	}
	if o.measured() {
		o.sentN++
		if c.retries == 0 {
			o.class(c).sent++
		}
	}
	o.bin().Sent++
}

func (o *recorder) refused(c *call, latency time.Duration) {
	o.refusedAll++
	if o.isCalm(c) {
		o.calm[1]++
	}
	if o.measured() {
		o.refusedN++
		o.refusals = append(o.refusals, latency)
	}
	if !o.closed {
		o.bin().Refused++
	}
}

func (o *recorder) timedOut(*call) {
	if o.measured() {
		o.timedOutN++
	}
	if !o.closed {
		o.bin().TimedOut++
	}
}

func (o *recorder) failed(*call) {
	if o.measured() {
		o.failedN++
	}
	if !o.closed {
		o.bin().Failed++
	}
}

func (o *recorder) served(c *call, latency time.Duration) {
	good := o.s.now-c.first <= o.s.s.Client.Useful
	if good {
		o.inTime++
		if !o.closed {
			o.bin().Served++
		}
	}
	if !o.measured() {
		return
	}
	r := o.class(c)
	o.latencies = append(o.latencies, latency)
	r.served = append(r.served, latency)
	if good {
		r.good++
	}
}

// close ends the record; later answers are not counted.
func (o *recorder) close() { o.closed = true }

func (o *recorder) result() *Result {
	span := (o.until - o.from).Seconds()
	r := &Result{Scenario: o.s.s.Name, Capacity: o.s.s.Capacity, Goodput: math.NaN()}
	good := 0
	for _, c := range o.s.s.Classes {
		if rec := o.classes[c.Name]; rec != nil {
			good += rec.good
			r.Classes = append(r.Classes, ClassResult{c.Name, share(rec.good, rec.sent), quantile(rec.served, 0.99)})
		}
	}
	r.Goodput = float64(good) / span / r.Capacity
	r.Shed, r.TimedOut, r.Failed = share(o.refusedN, o.sentN), share(o.timedOutN, o.sentN), share(o.failedN, o.sentN)
	r.Hosts = hostResults(o.s.hosts)
	r.P50, r.P99, r.RefusedP99 = quantile(o.latencies, 0.5), quantile(o.latencies, 0.99), quantile(o.refusals, 0.99)
	r.InTime, r.RefusedInAll = share(o.inTime, o.all[0]), share(o.refusedAll, o.all[1])
	r.WronglyRefused = share(o.calm[1], o.calm[0])
	r.Amplification = share(o.all[1], o.all[0])
	perSecond := 1 / binSpan.Seconds()
	for i := range o.bins {
		b := &o.bins[i]
		b.At = time.Duration(i) * binSpan
		b.Sent, b.Served, b.Refused, b.TimedOut = b.Sent*perSecond, b.Served*perSecond, b.Refused*perSecond, b.TimedOut*perSecond
		b.Failed *= perSecond
	}
	r.Series = o.bins
	first := int(o.from / binSpan)
	r.First5s = o.mean(first, min(first+50, int(o.until/binSpan)), func(p *Point) float64 { return p.Served }) / r.Capacity
	r.Converged, r.Recovered = o.converged(r.Capacity), o.recovered()
	return r
}

func hostResults(hosts []*Host) []HostResult {
	all := 0
	for _, h := range hosts {
		all += h.sent
	}
	results := make([]HostResult, len(hosts))
	for i, h := range hosts {
		results[i] = HostResult{share(h.sent, all), share(h.refused, h.sent), share(h.served, h.sent)}
	}
	return results
}

// converged finds the first moment from which nine tenths of the possible calls are served, second by second.
func (o *recorder) converged(capacity float64) time.Duration {
	first, last := int(o.from/binSpan), int(o.until/binSpan)
	served := func(p *Point) float64 { return p.Served }
	wanted := func(p *Point) float64 { return math.Min(p.Sent, capacity) }
	for i := first; i+20 <= last; i++ {
		if o.mean(i, i+10, served) >= 0.9*o.mean(i, i+10, wanted) && o.mean(i+10, i+20, served) >= 0.9*o.mean(i+10, i+20, wanted) {
			return time.Duration(i-first) * binSpan
		}
	}
	return never
}

// recovered looks for the first second after the measured phases in which next to nothing is refused, given up or failed.
func (o *recorder) recovered() time.Duration {
	last := int(o.until / binSpan)
	bad := func(p *Point) float64 { return p.Refused + p.TimedOut + p.Failed }
	for i := last; i+10 < len(o.bins); i++ {
		if o.mean(i, i+10, bad) <= 0.01*o.mean(i, i+10, func(p *Point) float64 { return p.Sent }) {
			return time.Duration(i-last) * binSpan
		}
	}
	return never
}

func (o *recorder) mean(from, to int, of func(*Point) float64) float64 {
	var sum float64
	for i := from; i < to; i++ {
		sum += of(&o.bins[i])
	}
	return sum / float64(max(1, to-from))
}

func share(part, whole int) float64 {
	if whole == 0 {
		return math.NaN()
	}
	return float64(part) / float64(whole)
}

// never stands for a duration without a value.
const never time.Duration = math.MaxInt64

func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return never
	}
	slices.Sort(values)
	return values[min(len(values)-1, int(q*float64(len(values))))]
}
