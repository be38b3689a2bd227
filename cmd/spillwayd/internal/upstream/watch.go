package upstream

import (
	"sync"
	"time"
)

// A Watch ends calls that take too long, such as the reads of a body, by a deadline in the past. It is safe for concurrent use, but only
// one call is watched at a time. Between calls it does nothing, so a stream may be silent.
type Watch struct {
	Most     time.Duration         // 0 is no limit
	Deadline func(time.Time) error // of the calls; it is not called after End

	mu    sync.Mutex
	timer *time.Timer // nil before the first call
	over  bool
}

// begin watches a call that may take the time most.
func (w *Watch) begin(most time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over:
	case w.timer == nil:
		w.timer = time.AfterFunc(most, w.expire)
	default:
		w.timer.Reset(most)
	}
}

// done notes that the call has ended.
func (w *Watch) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *Watch) expire() { w.set(time.Unix(1, 0)) }

// set sets a deadline, if there is a limit and the request has not ended.
func (w *Watch) set(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over && w.Most > 0 {
		_ = w.Deadline(at)
	}
}

// Do watches f.
func (w *Watch) Do(f func()) {
	w.begin(w.Most)
	defer w.done()
	f()
}

// End ends the Watch. It reports whether there was a limit.
func (w *Watch) End() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
	return w.Most > 0
}
