package breaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

var benchSink time.Time

// BenchmarkTwoClocks is what the others are to be compared with.
func BenchmarkTwoClocks(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		benchSink = time.Now()
		benchSink = time.Now()
	}
}

// begin makes now the time at which p begins, and returns a time well inside its first bucket.
func begin(p spillway.Policy) time.Time {
	r := spillway.Request{Arrived: time.Now()}
	if t, err := p.Admit(context.Background(), r); err == nil {
		p.Done(r, t, spillway.Result{Outcome: spillway.Ignored})
	}
	return r.Arrived.Add(time.Millisecond)
}

func benchPolicy(b *testing.B, p spillway.Policy, outcome spillway.Outcome) {
	ctx, start := context.Background(), begin(p)
	r, res := spillway.Request{Arrived: start}, spillway.Result{Outcome: outcome, Latency: 100}
	b.ReportAllocs()
	for b.Loop() {
		if t, err := p.Admit(ctx, r); err == nil {
			p.Done(r, t, res)
		}
	}
}

func benchPolicyParallel(b *testing.B, p spillway.Policy, goroutines int) {
	ctx, start := context.Background(), begin(p)
	b.ReportAllocs()
	b.SetParallelism(goroutines)
	b.RunParallel(func(pb *testing.PB) {
		r, res := spillway.Request{Arrived: start}, spillway.Result{Outcome: spillway.Success, Latency: 100}
		for pb.Next() {
			if t, err := p.Admit(ctx, r); err == nil {
				p.Done(r, t, res)
			}
		}
	})
}

func benchGate(b *testing.B, p spillway.Policy) {
	gate, ctx := spillway.New(p), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if permit, err := gate.Enter(ctx, spillway.Request{}); err == nil {
			permit.Done(spillway.Success)
		}
	}
}

func newBreaker(tb testing.TB, o *breaker.Options) *breaker.Breaker {
	tb.Helper()
	b, err := breaker.New(o)
	require.NoError(tb, err)
	return b
}

func openBreaker(tb testing.TB) *breaker.Breaker {
	b := newBreaker(tb, &breaker.Options{OpenFor: time.Hour})
	now := time.Now()
	for range 10 {
		r := spillway.Request{Arrived: now}
		t, err := b.Admit(context.Background(), r)
		require.NoError(tb, err)
		b.Done(r, t, spillway.Result{Outcome: spillway.Failure})
	}
	require.Equal(tb, breaker.Open, b.Stats().State)
	return b
}

func BenchmarkBreakerClosed(b *testing.B) {
	benchPolicy(b, newBreaker(b, nil), spillway.Success)
}

func BenchmarkBreakerClosedSlowCall(b *testing.B) {
	benchPolicy(b, newBreaker(b, &breaker.Options{SlowCall: time.Second}), spillway.Success)
}

func BenchmarkBreakerClosedWindowCalls(b *testing.B) {
	benchPolicy(b, newBreaker(b, &breaker.Options{WindowCalls: 100}), spillway.Success)
}

func BenchmarkBreakerFailing(b *testing.B) {
	o := &breaker.Options{FailureRate: 1, Consecutive: breaker.Off}
	brk := newBreaker(b, o)
	require.NoError(b, brk.SetMode(time.Now(), breaker.MetricsOnly))
	benchPolicy(b, brk, spillway.Failure)
}

func BenchmarkBreakerClosedParallel(b *testing.B) { benchPolicyParallel(b, newBreaker(b, nil), 1) }

func BenchmarkBreakerClosed8x(b *testing.B) { benchPolicyParallel(b, newBreaker(b, nil), 8) }

func BenchmarkBreakerClosedGate(b *testing.B) { benchGate(b, newBreaker(b, nil)) }

func BenchmarkBreakerOpen(b *testing.B) { benchPolicy(b, openBreaker(b), spillway.Success) }

func BenchmarkBreakerOpenParallel(b *testing.B) { benchPolicyParallel(b, openBreaker(b), 1) }

func BenchmarkBreakerOpenGate(b *testing.B) { benchGate(b, openBreaker(b)) }

func BenchmarkThrottle(b *testing.B) { benchPolicy(b, newThrottle(b, nil), spillway.Success) }

func BenchmarkThrottleParallel(b *testing.B) { benchPolicyParallel(b, newThrottle(b, nil), 1) }

func BenchmarkThrottle8x(b *testing.B) { benchPolicyParallel(b, newThrottle(b, nil), 8) }

// BenchmarkThrottleFailing is with nine of ten requests refused and the rest failed.
func BenchmarkThrottleFailing(b *testing.B) { benchPolicy(b, newThrottle(b, nil), spillway.Failure) }

func BenchmarkThrottleGate(b *testing.B) { benchGate(b, newThrottle(b, nil)) }

func BenchmarkKeyed(b *testing.B) {
	r := newKeyed(b, nil)
	keys := [...]string{"api.example.com", "db.example.com", "cache.example.com", "auth.example.com"}
	ctx, start, i := context.Background(), time.Now(), 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		req := spillway.Request{Key: keys[i%len(keys)], Arrived: start}
		if t, err := r.Admit(ctx, req); err == nil {
			r.Done(req, t, spillway.Result{Outcome: spillway.Success, Latency: 100})
		}
	}
}

// BenchmarkKeyedFlood is with keys that never come again.
func BenchmarkKeyedFlood(b *testing.B) {
	r := newKeyed(b, &breaker.KeyedOptions{MaxKeys: 64})
	ctx, start := context.Background(), time.Now()
	var key [8]byte
	keys := make([]string, 4096)
	for i := range keys {
		key[i%8]++
		keys[i] = string(key[:])
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		req := spillway.Request{Key: keys[i%len(keys)], Arrived: start}
		if t, err := r.Admit(ctx, req); err == nil {
			r.Done(req, t, spillway.Result{Outcome: spillway.Success, Latency: 100})
		}
	}
}
