package main

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime/metrics"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// A station is the processors of the process. Requests use them in the order of arrival, and the real sensors of
// package stats read its counters.
type station struct {
	w     *world
	cores int
	busy  int
	queue []job
	head  int
	used  time.Duration
	hist  metrics.Float64Histogram
	lies  lie
}

type job struct {
	cpu   time.Duration
	since time.Duration
	done  func()
}

// A lie is a fault of the sensors.
type lie int

const (
	honest lie = iota
	failing
	panicking
	frozen
	absurd
	numLies
)

func newStation(w *world) *station {
	s := &station{w: w, cores: 2}
	s.hist.Buckets = []float64{0}
	for b := 1e-6; b < 1000; b *= 1.5 {
		s.hist.Buckets = append(s.hist.Buckets, b)
	}
	s.hist.Counts = make([]uint64, len(s.hist.Buckets)-1)
	return s
}

// run calls done when the given CPU time has been used.
func (s *station) run(cpu time.Duration, done func()) {
	s.queue = append(s.queue, job{cpu, s.w.now, done})
	s.dispatch()
}

func (s *station) dispatch() {
	for s.busy < s.cores && s.head < len(s.queue) {
		j := s.queue[s.head]
		s.queue[s.head] = job{}
		if s.head++; s.head == len(s.queue) {
			s.queue, s.head = s.queue[:0], 0
		} else if s.head > 1024 {
			s.queue = append(s.queue[:0], s.queue[s.head:]...)
			s.head = 0
		}
		s.busy++
		i := 0
		for wait := (s.w.now - j.since).Seconds(); i < len(s.hist.Counts)-1 && s.hist.Buckets[i+1] <= wait; {
			i++
		}
		s.hist.Counts[i]++
		s.w.after(j.cpu, func() {
			s.used += j.cpu
			s.busy--
			j.done()
			s.dispatch()
		})
	}
}

var errBlind = errors.New("the sensors fail")

// ReadCPU implements stats.CPUSource.
func (s *station) ReadCPU(now time.Time) (stats.CPUReading, error) {
	used := s.used
	switch s.lies {
	case failing:
		return stats.CPUReading{}, errBlind
	case panicking:
		panic("sensor")
	case frozen:
		used = 0
	case absurd:
		return stats.CPUReading{Source: "soak", At: now, Direct: true, Usage: math.NaN()}, nil
	}
	return stats.CPUReading{Source: "soak", At: now, Levels: []stats.CPULevel{{Name: "soak", Used: used, Limit: float64(s.cores)}}}, nil
}

func (s *station) readWaits() (*metrics.Float64Histogram, error) {
	switch s.lies {
	case failing:
		return nil, errBlind
	case panicking:
		panic("sensor")
	case frozen, absurd:
		return &metrics.Float64Histogram{}, nil
	}
	return &s.hist, nil
}

// A dependency is a group of hosts that requests call. They answer, or some of them are in trouble.
type dependency struct {
	w      *world
	slower float64 // 1 is normal
	fails  float64 // share of the calls
	hung   bool
}

const patience = 2 * time.Second // of the callers

// call calls a host and reports the outcome. Every third host never has a fault.
func (d *dependency) call(rng *rand.Rand, host int, done func(o spillway.Outcome)) {
	healthy := host%3 == 0
	took := exp(rng, 15*time.Millisecond)
	if !healthy {
		took = time.Duration(float64(took) * d.slower)
	}
	if !healthy && d.hung || took > patience {
		d.w.after(patience, func() { done(spillway.Dropped) })
		return
	}
	o := spillway.Success
	if !healthy && rng.Float64() < d.fails {
		o = spillway.Failure
	}
	d.w.after(took, func() { done(o) })
}
