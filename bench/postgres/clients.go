package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/lab/overload"
)

// The client's side of the bargain.
const (
	useful   = time.Second     // an answer that comes later is worthless
	deadline = 2 * time.Second // then the client gives up and closes its connection
)

// maxOpen bounds how many requests the clients have open at once.
const maxOpen = 8192

// A kind is the way in which a request ended.
type kind uint8

const (
	answered kind = iota + 1 // answered in full
	refused                  // because of overload
	timeout                  // nothing came within the deadline
	failed                   // anything else, such as a failed query
	unsent                   // the clients had reached their bound
)

// A sample is one request. Latency counts from the intended send time, not from the time when the clients really sent it.
type sample struct {
	at      time.Duration // intended send time
	latency time.Duration
	lag     time.Duration // how much later it was really sent
	route   int
	kind    kind
}

// useful reports whether the client got an answer that it could use.
func (s sample) useful() bool { return s.kind == answered && s.latency <= useful }

// schedule draws the requests of a Poisson stream of rate requests per second that lasts from one moment to another. Their order is random,
// and the share of each route exact, since the few dear ones cause most of the work.
func schedule(rng *rand.Rand, m mix, rate float64, from, to time.Duration) []sample {
	var out []sample
	for t := from.Seconds() + rng.ExpFloat64()/rate; t < to.Seconds(); t += rng.ExpFloat64() / rate {
		out = append(out, sample{at: time.Duration(t * float64(time.Second))})
	}
	for i, n := range rng.Perm(len(out)) {
		out[i].route = m.pick((float64(n) + 0.5) / float64(len(out)))
	}
	return out
}

// clients form an open loop: they send at times fixed beforehand, whether or not earlier requests have been answered.
type clients struct {
	byRoute []overload.Client
	open    atomic.Int64
}

func newClients(addr string) *clients {
	c := &clients{}
	for _, r := range routes() {
		c.byRoute = append(c.byRoute, overload.NewClient(addr, "/"+r.name))
	}
	return c
}

func (c *clients) close() {
	for _, client := range c.byRoute {
		client.Close()
	}
}

// run sends all requests, with times counted from base, and waits for their ends. It returns the samples of the sent
// requests.
func (c *clients) run(ctx context.Context, base time.Time, requests []sample) []sample {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range requests {
		s := &requests[i]
		timer.Reset(time.Until(base.Add(s.at)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return requests[:i]
		}
		if c.open.Add(1) > maxOpen {
			c.open.Add(-1)
			s.kind = unsent
			continue
		}
		wg.Go(func() {
			c.one(base, s)
			c.open.Add(-1)
		})
	}
	return requests
}

func (c *clients) one(base time.Time, s *sample) {
	intended := base.Add(s.at)
	s.lag = time.Since(intended)
	err := c.byRoute[s.route].Do(intended.Add(deadline))
	s.latency, s.kind = time.Since(intended), kindOf(err)
}

func kindOf(err error) kind {
	var timed interface{ Timeout() bool }
	switch {
	case err == nil:
		return answered
	case errors.Is(err, overload.ErrRefused):
		return refused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timed) && timed.Timeout():
		return timeout
	}
	return failed
}

// closedLoop returns how many requests per second are answered when each of workers sends the next as soon as the last is
// answered. The first second does not count. The shares of the routes are exact.
func (c *clients) closedLoop(ctx context.Context, m mix, workers int, d time.Duration) float64 {
	var sent atomic.Int64
	do := func(by time.Time) error { return c.byRoute[m.nth(sent.Add(1))].Do(by) }
	return overload.ClosedLoop(ctx, do, workers, time.Second, d)
}
