package sim

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// blocked are the goroutines of requests in gates whose policies queue. They run beside the engine, in a bubble of
// testing/synctest. While there are any, the engine lets the clock of the bubble pass as its own does, and waits until
// all of them block before each event. Their answers are taken in the order of the requests, so that a run is the same
// to the bit.
type blocked struct {
	settle  func() // testing/synctest.Wait; nil if no policy queues
	outside int    // goroutines that have not answered
	number  int    // of the last one

	woken chan struct{} // holds one signal if there are answers
	mu    sync.Mutex
	// Guarded by mu.
	answers []answer
}

// An answer is what a goroutine leaves for the engine to do.
type answer struct {
	number int
	do     func()
}

// apart runs ask in a goroutine, and what it returns in the engine.
func (e *engine) apart(ask func() (do func())) {
	e.outside++
	e.number++
	number := e.number
	go func() {
		do := ask()
		e.mu.Lock()
		e.answers = append(e.answers, answer{number, do})
		e.mu.Unlock()
		select {
		case e.woken <- struct{}{}:
		default:
		}
	}()
	e.collect()
}

// collect does what the goroutines have answered up to now. It reports whether any had.
func (e *engine) collect() bool {
	e.settle()
	e.mu.Lock()
	answers := e.answers
	e.answers = nil
	e.mu.Unlock()
	select {
	case <-e.woken:
	default:
	}
	slices.SortFunc(answers, func(a, b answer) int { return cmp.Compare(a.number, b.number) })
	e.outside -= len(answers)
	for _, a := range answers {
		a.do()
	}
	return len(answers) > 0
}

// pass waits until time t, or until a goroutine answers. It reports whether t has come and none has anything to do.
func (e *engine) pass(t time.Duration) bool {
	if e.collect() {
		return false
	}
	if t > e.now {
		began := time.Now()               //nolint:forbidigo // the clock of the bubble
		timer := time.NewTimer(t - e.now) //nolint:forbidigo // of the bubble
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-e.woken:
		}
		e.now += time.Since(began) //nolint:forbidigo // the clock of the bubble
		return !e.collect()
	}
	return true
}
