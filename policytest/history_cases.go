package policytest

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
)

var randomCase = testCase{
	name: "random-orders",
	why: "requests end in any order, with any outcome, and some so late that the window or the state they began in is gone. If one" +
		" such path forgets a slot, or gives one back twice, the limit is wrong for ever after.",
	run: func(c *check) { c.live("random requests", 8, 1, (*driver).randomOrders) },
}

// live runs histories from each base, each with its own seed, and checks that they leave nothing behind. Each kind of
// history has its own stream of random numbers.
func (c *check) live(kind string, seeds, stream uint64, history func(*driver, *rand.Rand)) {
	for _, b := range bases() {
		for seed := range seeds {
			d := c.drive(b)
			history(d, rand.New(rand.NewPCG(seed, stream)))
			if !d.nothingLeft(b, kind) {
				break
			}
		}
	}
}

// historySteps returns the number of steps of a history. Histories of one goroutine are shorter under the race detector, which makes
// them ten times slower and cannot find anything in them.
func historySteps() int {
	if race.Enabled {
		return 500
	}
	return 1500
}

// randomOrders begins and ends requests at random. The remaining requests end very late.
func (d *driver) randomOrders(rng *rand.Rand) {
	for range historySteps() {
		switch k := rng.IntN(20); {
		case k < 11:
			_ = d.admit(d.random(rng))
		case k < 18:
			d.endRandom(rng)
		case k < 19:
			d.sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
		default:
			d.sleep(time.Duration(rng.Int64N(int64(5 * time.Second))))
		}
		d.believable()
	}
	d.sleep(d.c.o.Idle)
	_ = d.admit(d.random(rng)) // so that the policy notices how late it is
	for len(d.held) > 0 {
		d.endRandom(rng)
		d.believable()
	}
}

// random returns a random request, like those that services send.
func (d *driver) random(rng *rand.Rand) spillway.Request {
	r := d.c.o.Request(rng.IntN(1000))
	r.Priority += spillway.Priority(rng.IntN(13) - 6)
	if r.Cost == 0 {
		r.Cost = rng.IntN(4)
	}
	return r
}

func (d *driver) endRandom(rng *rand.Rand) {
	if n := len(d.held); n > 0 {
		d.end(rng.IntN(n), outcomes[rng.IntN(len(outcomes))])
	}
}

// believable checks that the policy's count in flight matches the requests that the driver holds, or their cost.
func (d *driver) believable() {
	if n, ok := d.inFlight(); ok && (n < 0 || n > d.cost) {
		d.c.fatalf("the policy has %d in flight, while %d requests of cost %d are", n, len(d.held), d.cost)
	}
}

var arrivalCase = testCase{
	name: "arrival-order",
	why: "clocks are read before locks are taken, so arrivals reach a policy out of order, and a machine's clock may be set back." +
		" A policy has to bear that: a negative difference of times, an index before the first bucket.",
	run: func(c *check) { c.live("requests that arrived out of order", 4, 2, (*driver).disorder) },
}

// disorder sends requests up to two seconds early or late, and now and then far too early.
func (d *driver) disorder(rng *rand.Rand) {
	before := []time.Duration{time.Hour, 365 * 24 * time.Hour, 80 * 365 * 24 * time.Hour}
	for range historySteps() {
		r := d.random(rng)
		r.Arrived = d.now().Add(time.Duration(rng.Int64N(int64(4*time.Second))) - 2*time.Second)
		if rng.IntN(100) == 0 {
			r.Arrived = d.now().Add(-before[rng.IntN(len(before))])
		}
		_ = d.admitAt(r)
		if n := len(d.held); n > 0 && rng.IntN(10) > 0 {
			latency := time.Duration(rng.Int64N(int64(time.Second)))
			d.endAfter(rng.IntN(n), outcomes[rng.IntN(len(outcomes))], latency)
		}
		d.sleep(time.Duration(rng.Int64N(int64(10 * time.Millisecond))))
	}
	d.endAll(spillway.Success)
	d.sleep(10 * time.Second)
}

var concurrentCase = testCase{
	name: "concurrent",
	why:  "every request of a service goes through one policy at once. Run this with -race.",
	run: func(c *check) {
		b := bases()[0]
		d := c.drive(b)
		var passed atomic.Int64 // virtual time
		var all sync.WaitGroup
		for seed := range uint64(8) {
			all.Go(func() { c.protect(func() { d.client(seed, &passed) }) })
		}
		all.Wait()
		d.sleep(time.Duration(passed.Load()))
		if len(c.problems) == 0 {
			d.nothingLeft(b, "8 goroutines")
		}
	},
}

// client is one of several goroutines that use d's policy. Each keeps its own counts.
func (d *driver) client(seed uint64, passed *atomic.Int64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	own := &driver{c: d.c, p: d.p, base: d.base, start: d.start}
	for range 2000 {
		step := time.Duration(rng.Int64N(int64(200 * time.Microsecond)))
		if d.c.queues {
			own.sleep(step)
		} else {
			own.offset = time.Duration(passed.Add(int64(step)))
		}
		if rng.IntN(2) == 0 || len(own.held) == 0 {
			_ = own.admit(own.random(rng))
		} else {
			own.endRandom(rng)
		}
		if rng.IntN(64) == 0 {
			own.inFlight()
		}
	}
	for len(own.held) > 0 {
		own.endRandom(rng)
	}
}

var oddCase = testCase{
	name: "odd-requests",
	why: "keys, costs and priorities come from callers, and some callers send anything. None may crash the service, make the sum of" +
		" costs overflow, or make room by a negative cost.",
	run: func(c *check) {
		for _, b := range bases() {
			room := c.drive(b).burst()
			_, again := c.burstBeside(b, c.o.Request(0))
			for _, odd := range oddRequests() {
				c.asking = odd.name + ", from " + b.name + ": "
				c.askOddly(b, odd.r)
				c.compareOdd(b, odd.r, room, again)
			}
		}
	},
}

type oddRequest struct {
	name string
	r    spillway.Request
}

func oddRequests() []oddRequest {
	return []oddRequest{
		{"the zero Request", spillway.Request{}},
		{"cost -1", spillway.Request{Cost: -1}},
		{"the least cost", spillway.Request{Cost: math.MinInt}},
		{"the greatest cost", spillway.Request{Cost: math.MaxInt}},
		{"the least priority", spillway.Request{Priority: math.MinInt}},
		{"the greatest priority", spillway.Request{Priority: math.MaxInt}},
		{"a key of a megabyte", spillway.Request{Key: strings.Repeat("k", 1<<20)}},
		{"a key not in UTF-8", spillway.Request{Key: "\xff\xfe"}},
	}
}

// oddTimes returns arrivals that only occur with broken clocks and in simulations.
func oddTimes() []time.Time {
	return []time.Time{
		time.Unix(0, 0),
		time.Unix(0, 1),
		time.Unix(-1, 999999999),
		time.Time{}.Add(1),
		time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC),
		time.Unix(math.MaxInt64, 999999999),
		time.Unix(math.MinInt64, 0),
	}
}

// askOddly asks about r and ends it in every way; none of them may panic.
func (c *check) askOddly(b base, r spillway.Request) {
	for _, o := range outcomes {
		for _, latency := range []time.Duration{0, math.MaxInt64} {
			d := c.drive(b)
			for range 3 {
				if d.admit(r) == nil {
					d.endAfter(0, o, latency)
				}
			}
			for _, at := range oddTimes() {
				r.Arrived = at
				if d.admitAt(r) == nil {
					d.endAfter(0, o, latency)
				}
			}
		}
	}
}

// burstBeside holds r while it tries a burst, ends the burst as Refused, and tries again. It returns 0, 0 if r is not
// admitted.
func (c *check) burstBeside(b base, r spillway.Request) (beside, again int) {
	d := c.drive(b)
	if d.admit(r) != nil {
		return 0, 0
	}
	beside = d.burst()
	d.endAll(spillway.Refused)
	return beside, d.burst()
}

// compareOdd checks that r frees no room while it is in flight, and gives back the same as an ordinary request.
func (c *check) compareOdd(b base, r spillway.Request, room, again int) {
	if c.drive(b).admit(r) != nil {
		return // refused, which is always right
	}
	beside, after := c.burstBeside(b, r)
	if beside > room && !c.same(beside, room) {
		c.errorf("%sthe policy admits %s at one instant, but %s while such a request is in flight",
			c.asking, c.count(room), c.count(beside))
	}
	if !c.o.CountsRefusals && !c.same(after, again) {
		c.errorf("%sthe policy admits %s after an ordinary request was Refused, but %s after such a one",
			c.asking, c.count(again), c.count(after))
	}
}
