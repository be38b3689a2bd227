package breaker_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

// A clock is time that goroutines share and move on.
type clock struct{ ns atomic.Int64 }

func (c *clock) tick(d time.Duration) time.Time { return t0.Add(time.Duration(c.ns.Add(int64(d)))) }

// TestStorm has eight goroutines do everything at once. Nothing is left in flight, and the events are a chain in which the
// Breaker is never opened twice.
func TestStorm(t *testing.T) {
	for _, o := range []breaker.Options{
		{SlowCall: 20 * time.Millisecond, Ramp: time.Second},
		{WindowCalls: 50, ProbeFailureRate: 0.5},
	} {
		o.Window, o.OpenFor, o.Consecutive = time.Second, 100*time.Millisecond, 5
		var events []breaker.Event // told one after the other
		o.OnEvent = func(e breaker.Event) { events = append(events, e) }
		b := newBreaker(t, &o)
		var c clock
		storm := func(seed uint64) {
			r := rand.New(rand.NewPCG(seed, 0))
			for i := range 20_000 {
				req := spillway.Request{Arrived: c.tick(time.Duration(r.IntN(200)) * time.Microsecond)}
				tk, err := b.Admit(context.Background(), req)
				if err == nil {
					now := c.tick(time.Duration(r.IntN(200)) * time.Microsecond)
					b.Done(req, tk, spillway.Result{Outcome: spillway.Outcome(r.IntN(5)), Latency: now.Sub(req.Arrived), RetryAfter: time.Duration(r.IntN(9)/8) * 50 * time.Millisecond})
				}
				switch i % 2000 {
				case 500:
					_ = b.SetState(c.tick(0), breaker.Closed, 0)
				case 1000:
					_ = b.SetMode(c.tick(0), []breaker.Mode{breaker.Auto, breaker.ForcedOpen, breaker.ForcedClosed, breaker.MetricsOnly}[r.IntN(4)])
				case 1100:
					_ = b.SetMode(c.tick(0), breaker.Auto)
				case 1500:
					_ = b.Tune(breaker.Options{Consecutive: 3 + r.IntN(5), OpenFor: o.OpenFor, OnEvent: o.OnEvent})
				case 1900:
					_ = b.StatsAt(c.tick(0))
				}
			}
		}
		var wg sync.WaitGroup
		for seed := range uint64(8) {
			wg.Go(func() { storm(seed) })
		}
		wg.Wait()
		_ = b.SetState(c.tick(0), breaker.Closed, 0) // whoever tells has told by then, or this does
		require.EqualValues(t, 0, b.StatsAt(c.tick(0)).InFlight)
		requireChain(t, events)
		require.Greater(t, len(events), 10)
	}
}

// TestNothingLeaksWhileOpen: eight goroutines of 200 failing calls each, fifty times; once it is open, it stays open.
func TestNothingLeaksWhileOpen(t *testing.T) {
	for range 50 {
		b := newBreaker(t, &breaker.Options{OpenFor: time.Hour})
		var opened atomic.Bool
		var leaked atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 200 {
					was := opened.Load()
					r := spillway.Request{Arrived: t0}
					tk, err := b.Admit(context.Background(), r)
					if err != nil {
						opened.Store(true)
						continue
					}
					if was {
						leaked.Add(1)
					}
					b.Done(r, tk, spillway.Result{Outcome: spillway.Failure})
				}
			})
		}
		wg.Wait()
		require.Zero(t, leaked.Load())
		require.Equal(t, breaker.Open, b.StatsAt(t0).State)
		require.EqualValues(t, 0, b.StatsAt(t0).InFlight)
	}
}

// TestNeverMoreProbesThanAllowed counts the calls that are inside at once while the dependency never gets well.
func TestNeverMoreProbesThanAllowed(t *testing.T) {
	b := newBreaker(t, &breaker.Options{Consecutive: 1, Probes: 3, OpenFor: time.Millisecond, MaxOpen: time.Millisecond, ProbeLease: time.Hour})
	var c clock
	newRig(t, b).run("F")
	c.tick(time.Second)
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5000 {
				r := spillway.Request{Arrived: c.tick(time.Microsecond)}
				tk, err := b.Admit(context.Background(), r)
				if err != nil {
					continue
				}
				for n := inside.Add(1); n > most.Load(); {
					most.Store(n)
				}
				runtime.Gosched()
				inside.Add(-1)
				b.Done(r, tk, spillway.Result{Outcome: spillway.Ignored})
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(3))
	require.Equal(t, breaker.HalfOpen, b.StatsAt(c.tick(0)).State)
}

// TestKeyedStorm has goroutines come with many keys, of which few have room.
func TestKeyedStorm(t *testing.T) {
	r := newKeyed(t, &breaker.KeyedOptions{MaxKeys: 8, MaxOpen: 0.2, New: func(string) (breaker.Member, error) {
		return breaker.New(&breaker.Options{Window: 10 * time.Millisecond, OpenFor: time.Millisecond, MaxOpen: time.Millisecond})
	}})
	var c clock
	var wg sync.WaitGroup
	for seed := range uint64(8) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 0))
			for range 20_000 {
				req := spillway.Request{
					Key:     string(rune('a' + rng.IntN(26))),
					Arrived: c.tick(time.Duration(rng.IntN(1000)) * time.Microsecond),
				}
				tk, err := r.Admit(context.Background(), req)
				if err != nil {
					continue
				}
				now := c.tick(0)
				r.Done(req, tk, spillway.Result{Outcome: spillway.Outcome(rng.IntN(5)), Latency: now.Sub(req.Arrived)})
			}
		})
	}
	wg.Wait()
	s := r.Stats()
	require.LessOrEqual(t, s.Keys, int64(8))
	require.Positive(t, s.Evicted)
	require.Positive(t, s.Overflowed)
	for key, m := range r.All() {
		require.EqualValues(t, 0, m.(*breaker.Breaker).StatsAt(c.tick(0)).InFlight, key)
	}
	require.EqualValues(t, 0, shared(r).StatsAt(c.tick(0)).InFlight)
}
