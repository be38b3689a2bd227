package overload

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// The default SLO and deadline of clients, for a [Work] that does not set them.
const (
	defaultSLO      = 500 * time.Millisecond // a later answer is worthless
	defaultDeadline = time.Second            // then the client gives up
)

// maxInFlight bounds how many requests the generator has open at once.
const maxInFlight = 4096

// A kind says how one request ended.
type kind uint8

const (
	pending  kind = iota
	answered      // in full
	refused       // because of overload
	timeout       // nothing came within the deadline
	failed        // anything else, such as a broken connection
	unsent        // the generator had reached its bound
)

// A sample is one request. Latency counts from the intended send time, not from the time when the generator sent it.
type sample struct {
	at      time.Duration // intended send time, since the run began
	lag     time.Duration // how much later it was really sent
	latency time.Duration
	waited  time.Duration // time since the first attempt, if this is a retry
	kind    kind
	late    bool // the answer, if there was one, came after the SLO
}

func (s *sample) good() bool { return s.kind == answered && !s.late }

// schedule draws the send times of a Poisson stream of rate requests per second that lasts d.
func schedule(rng *rand.Rand, rate float64, d time.Duration) []time.Duration {
	out := make([]time.Duration, 0, int(rate*d.Seconds()*1.1)+16)
	for t := 0.0; ; {
		t += rng.ExpFloat64() / rate
		if t >= d.Seconds() {
			return out
		}
		out = append(out, time.Duration(t*float64(time.Second)))
	}
}

// A tally counts the requests of one stretch while it goes on.
type tally struct{ sent, ended, good, refused, timeouts atomic.Int64 }

// A generator sends requests at times fixed beforehand, whether or not earlier ones have been answered.
type generator struct {
	client   Client
	base     time.Time // sample times count from here
	slo      time.Duration
	deadline time.Duration
	tries    int // how often a client retries if it was refused or not answered
	open     atomic.Int64
	wg       sync.WaitGroup

	mu    sync.Mutex
	again []sample // requests that were sent once more
}

// run sends one request at from+t for each t of times. It returns when the last one is sent; the samples are complete
// and t are complete only after wait.
func (g *generator) run(ctx context.Context, from time.Duration, times []time.Duration, t *tally) []sample {
	samples := make([]sample, len(times))
	for i := range samples {
		at := from + times[i]
		if !sleepUntil(ctx, g.base.Add(at)) {
			return samples[:i]
		}
		s := &samples[i]
		s.at = at
		if g.begin(s, t) {
			g.wg.Go(func() {
				g.one(s, t)
				g.insist(ctx, s, t)
			})
		}
	}
	return samples
}

// begin counts a request, unless the maximum number is already open.
func (g *generator) begin(s *sample, t *tally) bool {
	t.sent.Add(1)
	if g.open.Add(1) > maxInFlight {
		g.open.Add(-1)
		s.kind = unsent
		t.ended.Add(1)
		return false
	}
	return true
}

func (g *generator) one(s *sample, t *tally) {
	intended := g.base.Add(s.at)
	s.lag = time.Since(intended)
	err := g.client.Do(intended.Add(g.deadline))
	s.latency = time.Since(intended)
	s.kind, s.late = kindOf(err), s.waited+s.latency > g.slo
	g.open.Add(-1)
	switch {
	case s.good():
		t.good.Add(1)
	case s.kind == refused:
		t.refused.Add(1)
	case s.kind == timeout:
		t.timeouts.Add(1)
	}
	t.ended.Add(1)
}

// insist retries the request of s as often as a client does.
func (g *generator) insist(ctx context.Context, s *sample, t *tally) {
	last := *s
	for range g.tries {
		if last.kind != refused && last.kind != timeout {
			return
		}
		wait := last.latency + stormBackoff + time.Duration(rand.ExpFloat64()*float64(stormJitter))
		next := sample{at: last.at + wait, waited: last.waited + wait}
		if !sleepUntil(ctx, g.base.Add(next.at)) {
			return
		}
		if g.begin(&next, t) {
			g.one(&next, t)
		}
		g.mu.Lock()
		g.again = append(g.again, next)
		g.mu.Unlock()
		last = next
	}
}

func kindOf(err error) kind {
	switch {
	case err == nil:
		return answered
	case errors.Is(err, ErrRefused):
		return refused
	case timedOut(err):
		return timeout
	}
	return failed
}

// wait blocks until every request has ended, which takes at most the deadline.
func (g *generator) wait() { g.wg.Wait() }

func sleepUntil(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ClosedLoop returns how many requests per second a server answers for d when workers clients each send the next request
// as soon as they have the answer to the last. Requests during warm do not count. do sends a request with a deadline, and
// returns an error if it was not answered.
func ClosedLoop(ctx context.Context, do func(by time.Time) error, workers int, warm, d time.Duration) float64 {
	ctx, cancel := context.WithTimeout(ctx, warm+d)
	defer cancel()
	var done atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if do(time.Now().Add(10*time.Second)) == nil {
					done.Add(1)
				} else {
					sleepUntil(ctx, time.Now().Add(10*time.Millisecond))
				}
			}
		})
	}
	sleepUntil(ctx, time.Now().Add(warm))
	start, before := time.Now(), done.Load()
	<-ctx.Done()
	rate := float64(done.Load()-before) / time.Since(start).Seconds()
	wg.Wait()
	return rate
}
