package sim

import (
	"errors"
	"math"
	"math/bits"
	"runtime/metrics"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// A Host is one simulated process: its processors and its sensors. It is made by [Run] for each gate.
type Host struct {
	e     *engine
	p     processors
	pools map[string]*slots
	gate  *spillway.Gate
	cpu   *stats.Sensor[stats.CPUSample]
	sched *stats.Sensor[stats.SchedSample]
	blind bool // the sensors fail
	owed  int  // requests that clients wait for

	sent, admitted, refused, served int
}

func newHost(e *engine, m *Machine) *Host {
	h := &Host{e: e, pools: map[string]*slots{}}
	h.p = processors{e: e, cores: m.Cores, idle: m.Cores, speed: 1, quota: m.Quota, period: m.QuotaPeriod}
	h.p.periodEnd = m.QuotaPeriod
	for name, n := range m.Pools {
		h.pools[name] = &slots{all: n, free: n}
	}
	return h
}

// Cores returns the number of processors, which a real process knows as GOMAXPROCS.
func (h *Host) Cores() int { return h.p.cores }

// CPU returns the host's CPU sampler: a real one, fed with the counters of the simulated processors.
func (h *Host) CPU() *stats.Sensor[stats.CPUSample] {
	if h.cpu == nil {
		h.cpu = spillway.Must(stats.NewCPU(&stats.CPUOptions{Source: (*hostCPU)(h)}))
	}
	return h.cpu
}

// Sched returns the host's scheduling latency in the form that the shedder needs, the 90th percentile every 20 ms: a
// real sampler fed with the waits of the simulated goroutines.
func (h *Host) Sched() *stats.Sensor[stats.SchedSample] {
	if h.sched == nil {
		h.sched = spillway.Must(stats.NewSchedLatency(&stats.SchedLatencyOptions{
			Interval: 20 * time.Millisecond, Quantile: 0.9, Read: h.readWaits,
		}))
	}
	return h.sched
}

// hostCPU is a Host as a stats.CPUSource.
type hostCPU Host

// ReadCPU implements stats.CPUSource.
func (h *hostCPU) ReadCPU(now time.Time) (stats.CPUReading, error) {
	p := &h.p
	p.roll()
	if h.blind {
		return stats.CPUReading{}, errBlind
	}
	l := stats.CPULevel{Name: "sim", Used: p.used, Limit: p.capacity() * p.speed}
	if p.quota > 0 {
		l.Period, l.Periods, l.ThrottledPeriods, l.Throttled = p.period, p.periods, p.throttles, p.throttled
	}
	return stats.CPUReading{Source: "sim", At: now, Procs: p.cores, Levels: []stats.CPULevel{l}}, nil
}

var errBlind = errors.New("sim: the sensors fail")

func (h *Host) readWaits() (*metrics.Float64Histogram, error) {
	if h.blind {
		return nil, errBlind
	}
	return h.p.waits.read(), nil
}

// waits counts how long goroutines waited, in the shape of the runtime's histogram.
type waits struct {
	hist  metrics.Float64Histogram
	none  uint64                        // waits below the first bound, the most common ones
	since [waitBounds + 1]time.Duration // the bounds
	first [64]int                       // by the length of a duration in bits: the last bound that is not above any of them
}

const (
	waitLeast  = 1e-6 // the first bound, in seconds
	waitGrowth = 1.2  // from bound to bound
	waitBounds = 110  // up to 500 s
)

func (w *waits) record(d time.Duration) {
	if d < time.Duration(waitLeast*1e9) {
		w.none++
		return
	}
	w.init()
	i := w.first[bits.Len64(uint64(d))]
	for i < waitBounds-1 && d >= w.since[i+1] {
		i++
	}
	w.hist.Counts[i]++
}

// init sets the bounds, once.
func (w *waits) init() {
	if w.hist.Counts != nil {
		return
	}
	w.hist.Counts = make([]uint64, waitBounds)
	w.hist.Buckets = make([]float64, waitBounds+1)
	for i := range waitBounds {
		w.hist.Buckets[i+1] = waitLeast * math.Pow(waitGrowth, float64(i))
		w.since[i+1] = time.Duration(math.Ceil(w.hist.Buckets[i+1] * 1e9))
	}
	for length := range w.first {
		for i, since := range w.since[:waitBounds] {
			if length > 0 && since <= 1<<(length-1) {
				w.first[length] = i
			}
		}
	}
}

func (w *waits) read() *metrics.Float64Histogram {
	w.init()
	w.hist.Counts[0] = w.none
	return &w.hist
}

// slots are a pool, such as connections to a database: first come, first served.
type slots struct {
	all     int
	free    int // negative while more are in use than there are
	waiting []func()
}

func (s *slots) take(f func()) {
	if s.free > 0 {
		s.free--
		f()
		return
	}
	s.waiting = append(s.waiting, f)
}

func (s *slots) give() {
	s.free++
	s.serve()
}

// serve gives free slots to waiting requests.
func (s *slots) serve() {
	for s.free > 0 && len(s.waiting) > 0 {
		f := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.free--
		f()
	}
}

func (s *slots) resize(n int) {
	s.free += n - s.all
	s.all = n
	s.serve()
}

// Every calls f every d of virtual time, with the seconds since the beginning: to watch a policy while it runs.
func (h *Host) Every(d time.Duration, f func(seconds float64)) {
	h.e.after(d, func() {
		f(h.e.now.Seconds())
		h.Every(d, f)
	})
}
