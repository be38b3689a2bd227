package policytest

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/spillway-go/spillway"
)

var queueCase = testCase{
	name: "queue",
	why: "clients hang up and deadlines pass while requests queue. One that is gone must leave the queue at once and take no slot," +
		" or the service works for nobody, which is how queues turn overload into collapse.",
	bubble: true,
	run: func(c *check) {
		b := bases()[0]
		c.leavesOnCancel(b)
		c.leavesAtDeadline(b)
		c.wakes(b)
		for seed := range uint64(4) {
			c.comeAndGo(b, rand.New(rand.NewPCG(seed, 4)))
		}
	},
}

// A waiter is a request in its own goroutine.
type waiter struct {
	cancel context.CancelFunc
	done   atomic.Bool // after which the fields below may be read
	held
	err error
}

// waitWith asks about the next request with ctx, in a new goroutine, and returns when the request waits or is done.
func (d *driver) waitWith(ctx context.Context, cancel context.CancelFunc) *waiter {
	w := &waiter{cancel: cancel}
	w.r = d.next()
	w.r.Arrived = d.now()
	go d.c.protect(func() {
		defer w.done.Store(true)
		w.t, w.err = d.p.Admit(ctx, w.r)
	})
	synctest.Wait()
	return w
}

// collect takes over the slot of w if it got one.
func (d *driver) collect(w *waiter) {
	w.cancel()
	if w.done.Load() && w.err == nil {
		d.hold(w.held)
	}
}

// firstWaiter fills the policy until a request waits.
func (d *driver) firstWaiter() *waiter {
	for range d.c.o.Burst {
		w := d.waitWith(context.WithCancel(context.Background()))
		if !w.done.Load() {
			return w
		}
		d.collect(w)
	}
	d.c.skipf("the policy says that it Queues() and none of %d requests at one instant had to wait, so this rule was not"+
		" checked: hand in one with a smaller limit, or raise Options.Burst", d.c.o.Burst)
	return nil
}

func (c *check) leavesOnCancel(b base) {
	d := c.drive(b)
	w := d.firstWaiter()
	w.cancel()
	synctest.Wait()
	if !w.done.Load() {
		c.fatalf("Admit still waits after its ctx was cancelled")
	}
	if w.err != context.Canceled {
		c.fatalf("Admit returned %v when its ctx was cancelled, want ctx.Err(), which is %v", w.err, context.Canceled)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	w = d.waitWith(ended, cancel)
	if !w.done.Load() {
		c.fatalf("Admit waits although its ctx had been cancelled before")
	}
	d.collect(w)
	d.endAll(spillway.Success)
	d.nothingLeft(b, "a request whose ctx was cancelled in the queue")
}

func (c *check) leavesAtDeadline(b base) {
	d := c.drive(b)
	d.collectCancelled(d.firstWaiter())
	const timeout = 10 * time.Millisecond
	w := d.waitWith(context.WithTimeout(context.Background(), timeout))
	time.Sleep(timeout)
	synctest.Wait()
	if !w.done.Load() {
		c.fatalf("Admit still waits after the deadline of its ctx")
	}
	if w.err != nil && w.err != context.DeadlineExceeded && spillway.RejectionOf(w.err) == nil {
		c.fatalf("Admit returned %v when the deadline of its ctx passed, want ctx.Err(), which is %v", w.err, context.DeadlineExceeded)
	}
	d.collect(w)
	d.endAll(spillway.Success)
	d.nothingLeft(b, "a request whose deadline passed in the queue")
}

// collectCancelled makes w leave.
func (d *driver) collectCancelled(w *waiter) {
	w.cancel()
	synctest.Wait()
	d.collect(w)
}

func (c *check) wakes(b base) {
	d := c.drive(b)
	w := d.firstWaiter()
	d.endAll(spillway.Success)
	time.Sleep(c.o.Idle)
	synctest.Wait()
	if !w.done.Load() {
		w.cancel()
		c.fatalf("a request waits for ever although all requests before it have ended")
	}
	d.collect(w)
	d.endAll(spillway.Success)
	d.nothingLeft(b, "a request that waited for room")
}

// comeAndGo makes requests queue, leave and get admitted at random, sometimes at the same instant.
func (c *check) comeAndGo(b base, rng *rand.Rand) {
	d := c.drive(b)
	var waiting []*waiter
	for range 400 {
		switch k := rng.IntN(10); {
		case k < 4:
			waiting = append(waiting, d.waitWith(context.WithTimeout(context.Background(), time.Duration(rng.IntN(20))*time.Millisecond)))
		case k < 6 && len(waiting) > 0:
			waiting[rng.IntN(len(waiting))].cancel() // a grant may arrive at the same time
		case k < 9:
			d.endRandom(rng)
		default:
			time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
		}
		if rng.IntN(2) == 0 {
			waiting = d.settle(waiting)
		}
	}
	for _, w := range waiting {
		w.cancel()
	}
	if left := d.settle(waiting); len(left) > 0 {
		c.fatalf("%d requests still wait after their ctx was cancelled", len(left))
	}
	for len(d.held) > 0 {
		d.endRandom(rng)
	}
	d.nothingLeft(b, "requests that queued, left and were granted at random")
}

// settle collects the waiting requests that are done and returns the others.
func (d *driver) settle(waiting []*waiter) []*waiter {
	synctest.Wait()
	var left []*waiter
	for _, w := range waiting {
		if w.done.Load() {
			d.collect(w)
		} else {
			left = append(left, w)
		}
	}
	return left
}
