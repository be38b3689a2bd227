package limiter

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
)

// errZero is what zero values answer.
var errZero = &spillway.Rejection{Policy: "limiter", Reason: ReasonZero}

// Waits are rounded up to steps before they are told: they begin at tick, of which there are exactly 512 in a second, and
// are at most 1/16 of the wait further on. So there are few different rejections, and each is built once.
const (
	tick  = time.Second / 512
	fine  = 16 // steps per doubling
	rows  = 64 - 4
	shift = 4 // log2(fine)
)

// rejections are the refusals of one limit: shared by all who are refused, and built when they are first needed.
type rejections struct {
	policy, reason string
	over           bool
	unknown        spillway.Rejection // nobody knows when
	tooLarge       spillway.Rejection
	negative       spillway.Rejection
	steps          [rows]atomic.Pointer[[fine]atomic.Pointer[spillway.Rejection]]
}

func newRejections(policy, reason string, over bool) *rejections {
	r := &rejections{policy: policy, reason: reason, over: over}
	r.unknown = r.build(reason, 0)
	r.tooLarge = r.build(ReasonTooLarge, 0)
	r.negative = r.build(ReasonNegative, 0)
	return r
}

func (r *rejections) build(reason string, retryAfter time.Duration) spillway.Rejection {
	return spillway.Rejection{Policy: r.policy, Reason: reason, RetryAfter: retryAfter, OverQuota: r.over}
}

// cost returns the rejection of a cost that can never pass.
func (r *rejections) cost(n int64) *spillway.Rejection {
	if n < 0 {
		return &r.negative
	}
	return &r.tooLarge
}

// after returns the rejection of a request that should be tried again after wait.
func (r *rejections) after(wait time.Duration) *spillway.Rejection {
	if wait >= horizon || wait < 0 {
		return &r.unknown
	}
	row, col, told := step(wait)
	cells := r.steps[row].Load()
	if cells == nil {
		cells = new([fine]atomic.Pointer[spillway.Rejection])
		if !r.steps[row].CompareAndSwap(nil, cells) {
			cells = r.steps[row].Load()
		}
	}
	if rej := cells[col].Load(); rej != nil {
		return rej
	}
	rej := r.build(r.reason, told)
	cells[col].CompareAndSwap(nil, &rej)
	return cells[col].Load()
}

// step rounds wait up. Below fine ticks a step is one tick; from there on, a row has fine steps and is twice as wide as the
// row before.
func step(wait time.Duration) (row, col int, told time.Duration) {
	q := max(uint64(wait+tick-1)/uint64(tick), 1)
	if q <= fine {
		return 0, int(q - 1), time.Duration(q) * tick
	}
	// q is in (2^(e-1), 2^e] with e > shift; a step is 2^(e-1-shift) ticks wide.
	e := bits.Len64(q - 1)
	width := e - 1 - shift
	up := (q + 1<<width - 1) >> width // in (fine, 2*fine]
	return e - shift, int(up - fine - 1), time.Duration(up<<width) * tick
}

// republished is how often a rejection that counts down is published anew.
const republished = 100 * time.Millisecond

// A countdown is a rejection whose RetryAfter leads to a fixed instant, such as the end of a window. It is published anew
// at most every 100 ms, so what it tells is late by no more.
type countdown struct {
	shown atomic.Pointer[countdownAt]
}

type countdownAt struct {
	rejection spillway.Rejection
	from, to  int64 // ns: when it was published, and where it leads
}

// until returns the rejection of a request at now that should be tried again at to. Where others have to wait longer, since
// they cost more, it is not theirs.
func (c *countdown) until(r *rejections, now, to int64) *spillway.Rejection {
	s := c.shown.Load()
	switch {
	case s == nil, to > s.to, now < s.from-int64(republished), now >= s.from+int64(republished):
		s = &countdownAt{rejection: r.build(r.reason, time.Duration(to-now)), from: now, to: to}
		c.shown.Store(s)
	case to < s.to-int64(republished):
		return r.after(time.Duration(to - now))
	}
	return &s.rejection
}
