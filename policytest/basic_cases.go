package policytest

import (
	"context"
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
)

var newPolicyCase = testCase{
	name: "new-policy",
	why:  "the other cases compare policies with different histories, which needs a newPolicy that returns a new one each time.",
	run: func(c *check) {
		a, b := c.drive(bases()[0]), c.drive(bases()[0])
		for _, d := range []*driver{a, b} {
			if v := reflect.ValueOf(d.p); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
				c.fatalf("newPolicy returned nil")
			}
		}
		v, w := reflect.ValueOf(a.p), reflect.ValueOf(b.p)
		if v.Kind() == reflect.Pointer && v.Pointer() == w.Pointer() && v.Type().Elem().Size() > 0 {
			c.fatalf("newPolicy returned the same policy twice")
		}
	},
}

var noBlockingCase = testCase{
	name: "no-blocking",
	why: "a request that waits in Admit keeps what earlier policies gave it, and its wait is taken for latency by the policies" +
		" behind. A policy that makes requests wait has a method Queues() bool, so that a Gate can tell.",
	bubble: true,
	run: func(c *check) {
		b := bases()[0]
		for _, s := range states() {
			var took time.Duration
			done := false
			go c.protect(func() {
				defer func() { done = true }()
				begin := time.Now()
				d := c.reach(b, s)
				d.burst()
				for i := range len(d.held) {
					d.end(0, outcomes[i%len(outcomes)])
				}
				d.burst()
				took = time.Since(begin)
			})
			synctest.Wait()
			switch {
			case !done:
				c.fatalf("%s: Admit or Done blocks, at the latest when %d requests came at one instant", s.name, c.o.Burst)
			case took != 0:
				c.fatalf("%s: Admit or Done slept: %v in all", s.name, took)
			}
		}
	},
}

var outcomes = []spillway.Outcome{spillway.Ignored, spillway.Success, spillway.Failure, spillway.Dropped, spillway.Refused}

var noAllocationCase = testCase{
	name: "no-allocation",
	why: "refusing must stay the cheapest thing a service does when it has the least to spare, and every allocation on the way of" +
		" a request is paid again by the garbage collector.",
	run: func(c *check) {
		if race.Enabled {
			c.skipf("allocations are not counted under the race detector: it adds its own")
		}
		for _, o := range outcomes {
			d := c.drive(bases()[0])
			r := c.o.Request(0)
			n := testing.AllocsPerRun(2000, func() { d.serveOne(r, o) })
			waited := c.queues && d.elapsed() > 0 // a waiting call may allocate
			if n != 0 && !waited {
				c.errorf("Admit and Done with outcome %v allocate %v times", o, n)
			}
		}
		for _, s := range states() {
			if !c.queues {
				c.refusalAllocates(s)
			}
		}
	},
}

// serveOne runs r for a millisecond of virtual time without allocating.
func (d *driver) serveOne(r spillway.Request, o spillway.Outcome) {
	r.Arrived = d.now()
	t, err := d.p.Admit(context.Background(), r)
	d.offset += time.Millisecond
	if err == nil {
		d.p.Done(r, t, spillway.Result{Outcome: o, Latency: time.Millisecond})
	}
}

// refusalAllocates counts the allocations of refusals in state s, if there are any.
func (c *check) refusalAllocates(s state) {
	d := c.reach(bases()[0], s)
	if d.burst() == c.o.Burst {
		return
	}
	r := c.o.Request(0)
	refused := 0
	n := testing.AllocsPerRun(1000, func() {
		r.Arrived = d.now()
		if t, err := d.p.Admit(context.Background(), r); err == nil {
			d.p.Done(r, t, spillway.Result{Outcome: spillway.Refused})
		} else {
			refused++
		}
		d.offset += time.Microsecond
	})
	if n != 0 && refused > 0 {
		c.errorf("%s: Admit allocates %v times to refuse", s.name, n)
	}
}

var doneAnyhowCase = testCase{
	name: "done-anyhow",
	why: "a handler may panic, call runtime.Goexit, or end in another goroutine than it began. The slot of such a request is" +
		" given back like any other, or a service that panics now and then runs out of slots.",
	run: func(c *check) {
		for _, b := range bases() {
			want, _ := c.endBy(b, func(end func()) { end() })
			for _, way := range waysToEnd {
				got, left := c.endBy(b, way.end)
				if left != 0 {
					c.errorf("from %s: after %d requests that ended by %s the policy has %d in flight", b.name, enough, way.name, left)
				} else if !c.same(got, want) {
					c.errorf("from %s: after %d requests that failed it admits %s at one instant, but %s if they ended by %s",
						b.name, enough, c.count(want), c.count(got), way.name)
				}
			}
		}
	},
}

var waysToEnd = []struct {
	name string
	end  func(end func())
}{
	{"a panic", func(end func()) {
		defer func() { _ = recover() }()
		defer end()
		panic("handler")
	}},
	{"runtime.Goexit", func(end func()) {
		await(func() {
			defer end()
			runtime.Goexit()
		})
	}},
	{"Done in another goroutine", await},
}

// await runs f in another goroutine.
func await(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// enough is the number of requests that exhausts a policy that leaks one permit each time.
const enough = 2000

// endBy admits requests through a Gate, ends each with way, and returns how many requests are admitted afterwards.
func (c *check) endBy(b base, way func(end func())) (admitted int, inFlight int64) {
	// Under the race detector the stack of a goroutine that calls promoted methods seems to grow with each call, and
	// the cost of starting a goroutine grows with the depth of the stack. So this begins with a new goroutine.
	await(func() { c.protect(func() { admitted, inFlight = c.drive(b).endMany(way) }) })
	return admitted, inFlight
}

func (d *driver) endMany(way func(end func())) (admitted int, inFlight int64) {
	c := d.c
	gate := spillway.New(d.p)
	for range enough {
		r := d.next()
		r.Arrived = d.now()
		permit, err := d.enter(gate, r)
		d.sleep(time.Millisecond)
		if err == nil {
			way(func() { c.protect(func() { permit.DoneAt(d.now(), spillway.Failure, 0) }) })
		}
	}
	inFlight, _ = d.inFlight()
	d.sleep(c.o.Idle)
	if !c.o.Learns {
		admitted = d.burst()
	}
	return admitted, inFlight
}
