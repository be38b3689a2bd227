package migrate

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

var errDown = errors.New("the dependency is down")

func newGobreaker() *gobreaker.CircuitBreaker[int] {
	return gobreaker.NewCircuitBreaker[int](gobreaker.Settings{
		Name:        "prices",
		MaxRequests: 1,
		Timeout:     60 * time.Second,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures > 5 },
	})
}

func priceBefore(brk *gobreaker.CircuitBreaker[int], fetch func() (int, error)) (int, error) {
	price, err := brk.Execute(fetch)
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return 0, nil // the fallback: fetch was not called
	}
	return price, err
}

func newBreakerAfter() (*breaker.Breaker, error) {
	return breaker.New(&breaker.Options{
		Name:        "prices",
		Probes:      1,
		OpenFor:     60 * time.Second,
		Consecutive: 6,
		FailureRate: breaker.Off, // gobreaker has no rate unless ReadyToTrip computes one
	})
}

func priceAfter(ctx context.Context, gate *spillway.Gate, fetch func() (int, error)) (price int, err error) {
	err = spillway.Do(ctx, gate, spillway.Request{}, func(context.Context) error {
		price, err = fetch()
		return err
	})
	if errors.Is(err, spillway.ErrRejected) {
		return 0, nil // the fallback: fetch was not called
	}
	return price, err
}

func TestGobreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		down := func() (int, error) { calls++; return 0, errDown }
		up := func() (int, error) { calls++; return 7, nil }

		old := newGobreaker()
		brk, err := newBreakerAfter()
		require.NoError(t, err)
		gate := spillway.New(brk)
		for name, price := range map[string]func(func() (int, error)) (int, error){
			"before": func(f func() (int, error)) (int, error) { return priceBefore(old, f) },
			"after":  func(f func() (int, error)) (int, error) { return priceAfter(t.Context(), gate, f) },
		} {
			for range 6 {
				_, err := price(down)
				require.ErrorIs(t, err, errDown, name)
			}
			calls = 0
			_, err := price(down)
			require.NoError(t, err, name)
			require.Zero(t, calls, name)
			time.Sleep(80 * time.Second) // jitter: 60 s and a fifth at most
			got, err := price(up)
			require.NoError(t, err, name)
			require.Equal(t, 7, got, name)
		}
		require.Equal(t, gobreaker.StateClosed, old.State())
		require.Equal(t, breaker.Closed, brk.Stats().State)

		// The difference: calls that the caller cancelled.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 6 {
			_, err := priceBefore(old, func() (int, error) { return 0, ctx.Err() })
			require.ErrorIs(t, err, context.Canceled)
			_, err = priceAfter(ctx, gate, func() (int, error) { return 0, ctx.Err() })
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Equal(t, gobreaker.StateOpen, old.State())
		require.Equal(t, breaker.Closed, brk.Stats().State)
	})
}

// A call that reports its end twice counts twice in gobreaker.
func TestGobreakerDoneTwice(t *testing.T) {
	old := gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{})
	done, err := old.Allow()
	require.NoError(t, err)
	done(errDown)
	done(errDown)
	require.EqualValues(t, 2, old.Counts().TotalFailures)

	brk, err := newBreakerAfter()
	require.NoError(t, err)
	permit, err := spillway.New(brk).Enter(t.Context(), spillway.Request{})
	require.NoError(t, err)
	permit.Done(spillway.Failure)
	permit.Done(spillway.Failure)
	require.EqualValues(t, 1, brk.Stats().Failures)
}

// One failure in ten seconds never makes six in a row in a moving window of thirty, and a call that takes longer than the
// window never counts.
func TestGobreakerWindow(t *testing.T) {
	for name, length := range map[string]time.Duration{"sparse": 0, "slow": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{Interval: 30 * time.Second, BucketPeriod: 3 * time.Second})
				brk, err := newBreakerAfter()
				require.NoError(t, err)
				gate := spillway.New(brk)
				fail := func() (int, error) { time.Sleep(length); return 0, errDown }
				for range 20 {
					_, _ = priceBefore(old, fail)
					if brk.Stats().State == breaker.Closed {
						_, _ = priceAfter(t.Context(), gate, fail)
					}
					time.Sleep(10 * time.Second)
				}
				require.Equal(t, gobreaker.StateClosed, old.State())
				require.NotEmpty(t, brk.Stats().Openings)
			})
		})
	}
}

// The probe exits its goroutine. A day later the dependency works.
func TestGobreakerLostProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newGobreaker()
		brk, err := newBreakerAfter()
		require.NoError(t, err)
		gate := spillway.New(brk)
		for name, price := range map[string]func(func() (int, error)) (int, error){
			"before": func(f func() (int, error)) (int, error) { return priceBefore(old, f) },
			"after":  func(f func() (int, error)) (int, error) { return priceAfter(t.Context(), gate, f) },
		} {
			for range 6 {
				_, err := price(down)
				require.ErrorIs(t, err, errDown, name)
			}
			time.Sleep(80 * time.Second)
			go func() { _, _ = price(func() (int, error) { runtime.Goexit(); return 0, nil }) }()
			time.Sleep(24 * time.Hour)
			got, err := price(up)
			require.NoError(t, err, name)
			require.Equal(t, map[string]int{"before": 0, "after": 7}[name], got, "0 is the fallback")
		}
	})
}

// The hook asks for the state of the breaker.
func TestGobreakerHook(t *testing.T) {
	var old *gobreaker.CircuitBreaker[int]
	old = gobreaker.NewCircuitBreaker[int](gobreaker.Settings{OnStateChange: func(string, gobreaker.State, gobreaker.State) { old.State() }})
	var brk *breaker.Breaker
	var states []breaker.State
	brk, err := breaker.New(&breaker.Options{Consecutive: 6, OnEvent: func(breaker.Event) { states = append(states, brk.Stats().State) }})
	require.NoError(t, err)
	gate := spillway.New(brk)
	for range 6 {
		_, _ = priceAfter(t.Context(), gate, down)
	}
	require.Equal(t, []breaker.State{breaker.Open}, states)

	ended := make(chan struct{})
	go func() { // it stays until the process ends
		for range 6 {
			_, _ = priceBefore(old, down)
		}
		close(ended)
	}()
	select {
	case <-ended:
		t.Error("the hook of gobreaker does not lock it up any more")
	case <-time.After(50 * time.Millisecond): // that nothing happens takes time to see
	}
}
