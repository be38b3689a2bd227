package stats

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNoReading is the Err of a sample taken before there was anything to compare: most sensors need two readings.
var ErrNoReading = errors.New("stats: no reading yet")

// A Sensor publishes samples of one thing: the CPU ([NewCPU]), the waits of goroutines ([NewSchedLatency]), memory
// ([NewMemory]), garbage collection ([NewGC]) or the pressure on a resource ([NewPressure]). One Sensor serves any number of
// users.
//
// It is pulled: at most once per interval, one caller of Sample or Read takes a reading, and the others get the last sample
// without waiting. So a Sensor needs no goroutine and no Close, and runs in simulated time. [Sensor.Start] adds a steady beat.
// All methods may be called concurrently.
type Sensor[S sample] struct {
	interval time.Duration
	// take changes a copy of the last sample by a reading, and returns when that was. It is never run concurrently with itself.
	take func(s *S, now time.Time) time.Time
	last atomic.Pointer[published[S]]
	mu   sync.Mutex // held by the caller that reads
	beat beat
}

// A sample has one figure that says most.
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

// Sample returns the last sample, after a new reading if one is due. Times given to Sample come from one clock, which may
// be simulated; a time a little before that of another caller does no harm.
func (s *Sensor[S]) Sample(now time.Time) S { return *s.ref(now) }

// Read returns the figure that says most, or why it is unknown. It is a reading for a signal of the shedder. The figure of a
// CPUSample is Usage, that of a SchedSample is Value in seconds, and that of the others is Share.
func (s *Sensor[S]) Read(now time.Time) (float64, error) { return (*s.ref(now)).figure() }

// ref is Sample without the copy.
func (s *Sensor[S]) ref(now time.Time) *S {
	last := s.last.Load()
	if now.Before(last.due) {
		return &last.sample
	}
	return s.refresh(now, 0)
}

// refresh takes a reading unless another goroutine does, or has just done so. A tick of the beat may be early by as much: it must
// not wait for the next one because it comes just before a reading is due.
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

// Start begins a steady beat: a goroutine that asks now and then once per interval, by the real clock, so that no sample is older
// than that even if there is no other caller. A second Start does nothing. Close ends the beat.
func (s *Sensor[S]) Start() {
	s.beat.start(s.interval, func(now time.Time) { s.refresh(now, s.interval/2) })
}

// Close ends the beat of Start, and waits until its goroutine is gone. It may be called more than once, and returns nil. A
// closed Sensor goes on being pulled, and can be started again. One that was never started needs no Close.
func (s *Sensor[S]) Close() error {
	s.beat.stop()
	return nil
}

// beat is a goroutine that ticks, owned by a Sensor. The zero beat is stopped.
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
