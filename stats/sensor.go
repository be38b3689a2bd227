package stats

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNoReading is the Err of a sample before there is anything to compare: most sensors need two readings.
var ErrNoReading = errors.New("stats: no reading yet")

// A Sensor publishes samples of one thing: the CPU ([NewCPU]), the waits of goroutines ([NewSchedLatency]), memory
// ([NewMemory]), garbage collection ([NewGC]) or the pressure on a resource ([NewPressure]). One Sensor serves any number of
// users.
//
// Callers drive it: at most once per interval, one caller of Sample or Read takes a reading, and the others get the
// last sample without waiting. So a Sensor needs no goroutine and no Close, and runs in simulated time. [Sensor.Start]
// adds a steady beat. All methods may be called concurrently.
type Sensor[S sample] struct {
	interval time.Duration
	// take updates a copy of the last sample with a reading, and returns the time of the reading. It is never run
	// concurrently with itself.
	take func(s *S, now time.Time) time.Time
	last atomic.Pointer[published[S]]
	mu   sync.Mutex // held by the caller that reads
	beat beat
}

// A sample has one main figure.
type sample interface {
	figure() (float64, error)
}

type published[S any] struct {
	sample S
	due    time.Time // when to read again
}

// newSensor returns a Sensor that has published first. The error says that the interval of the options is too short.
func newSensor[S sample](kind string, interval, byDefault time.Duration, first S, take func(*S, time.Time) time.Time) (*Sensor[S], error) {
	if interval == 0 {
		interval = byDefault
	}
	if interval < time.Millisecond {
		return nil, fmt.Errorf("stats: %s: Interval must be at least 1ms, got %v", kind, interval)
	}
	s := &Sensor[S]{interval: interval, take: take}
	s.last.Store(&published[S]{sample: first})
	return s, nil
}

// Sample returns the last sample, after a new reading if one is due. All times given to Sample must come from one
// clock, which may be simulated. A time slightly before that of another caller does no harm.
func (s *Sensor[S]) Sample(now time.Time) S { return *s.ref(now) }

// Read returns the main figure of the sample, or the error why it is unknown. Use it as the Read of a signal of the
// shedder. The figure is Usage for a CPUSample, Value in seconds for a SchedSample, and Share for the others.
func (s *Sensor[S]) Read(now time.Time) (float64, error) { return (*s.ref(now)).figure() }

// ref is Sample without the copy.
func (s *Sensor[S]) ref(now time.Time) *S {
	last := s.last.Load()
	if now.Before(last.due) {
		return &last.sample
	}
	return s.refresh(now, 0)
}

// refresh takes a reading unless another goroutine does so now or has just done so. A tick of the beat may come up to
// early before a reading is due, so that it does not have to wait for the next tick.
func (s *Sensor[S]) refresh(now time.Time, early time.Duration) *S {
	if !s.mu.TryLock() {
		return &s.last.Load().sample
	}
	defer s.mu.Unlock()
	last := s.last.Load()
	if now.Add(early).Before(last.due) {
		return &last.sample
	}
	next := &published[S]{sample: last.sample}
	next.due = s.take(&next.sample, now).Add(s.interval)
	s.last.Store(next)
	return &next.sample
}

// Start begins a steady beat: a goroutine that reads now and then once per interval, by the real clock. So no sample is
// older than an interval, even without other callers. A second Start does nothing. Close ends the beat.
func (s *Sensor[S]) Start() {
	s.beat.start(s.interval, func(now time.Time) { s.refresh(now, s.interval/2) })
}

// Close ends the beat of Start, and waits until its goroutine is gone. It may be called more than once, and returns
// nil. A closed Sensor still works when called, and can be started again. A Sensor that was never started needs no
// Close.
func (s *Sensor[S]) Close() error {
	s.beat.stop()
	return nil
}

// beat is a ticking goroutine, owned by a Sensor. The zero beat is stopped.
type beat struct {
	mu   sync.Mutex
	quit chan struct{}
	done chan struct{}
}

func (b *beat) start(interval time.Duration, tick func(now time.Time)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.quit != nil {
		return
	}
	quit, done := make(chan struct{}), make(chan struct{})
	b.quit, b.done = quit, done
	go func() {
		defer close(done)
		tick(time.Now())
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
				// Not the ticker's time: the tick may have waited long for a processor.
				tick(time.Now())
			}
		}
	}()
}

func (b *beat) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.quit == nil {
		return
	}
	close(b.quit)
	<-b.done
	b.quit, b.done = nil, nil
}
