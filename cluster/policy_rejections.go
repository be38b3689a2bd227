package cluster

import (
	"errors"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// ReasonLost is the reason of a [spillway.Rejection] when Redis gave no answer and the rest was refused: it is the service
// that lacks something, and not the caller who used up a quota.
const ReasonLost = "redis lost"

// Waits are rounded up to steps before they are told, as package limiter does: they begin at tick, and are at most 1/16 of the
// wait further on. So there are few different rejections, and each is built once.
const (
	tick  = time.Second / 512
	fine  = 16 // steps per doubling
	rows  = 64 - 4
	shift = 4 // log2(fine)
)

// rejections are the refusals of one rule: shared by all who are refused, and built when they are first needed.
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
	r.tooLarge = r.build(limiter.ReasonTooLarge, 0)
	r.negative = r.build(limiter.ReasonNegative, 0)
	return r
}

// reason returns why the rule refuses, in the words of package limiter.
func (r Rule) reason() string {
	if r.kind == bucketKind {
		return limiter.ReasonRate
	}
	return limiter.ReasonQuota
}

func (r *rejections) build(reason string, retryAfter time.Duration) spillway.Rejection {
	return spillway.Rejection{Policy: r.policy, Reason: reason, RetryAfter: retryAfter, OverQuota: r.over}
}

// cost returns the rejection of a cost that can never pass.
func (r *rejections) cost(n int) *spillway.Rejection {
	if n < 0 {
		return &r.negative
	}
	return &r.tooLarge
}

// after returns the rejection of a request that should be tried again after wait.
func (r *rejections) after(wait time.Duration) *spillway.Rejection {
	if wait <= 0 {
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
	q := max((uint64(wait)+uint64(tick)-1)/uint64(tick), 1)
	if q <= fine {
		return 0, int(q - 1), time.Duration(q) * tick
	}
	// q is in (2^(e-1), 2^e] with e > shift; a step is 2^(e-1-shift) ticks wide.
	e := bits.Len64(q - 1)
	width := e - 1 - shift
	up := (q + 1<<width - 1) >> width // in (fine, 2*fine]
	return e - shift, int(up - fine - 1), time.Duration(up<<width) * tick
}

// costError returns the error of package limiter for a call that can never pass: a limit of that package with the same
// name and size makes it, so that it wraps what that would.
func costError(name string, n int, most int64) error {
	w, err := limiter.NewFixedWindow(&limiter.FixedWindowOptions{
		Limit: int(min(most, math.MaxInt)), Period: time.Hour, Name: name,
	})
	if err != nil {
		return err // the name and the limit were validated, so this is not reached
	}
	return w.AllowAt(time.Time{}, n)
}

// retryAfter returns the RetryAfter of a rejection, or 0.
func retryAfter(err error) time.Duration {
	var rej *spillway.Rejection
	if errors.As(err, &rej) {
		return rej.RetryAfter
	}
	return 0
}
