package migrate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/afex/hystrix-go/hystrix"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/limiter"
)

func pricesCommand() hystrix.CommandConfig {
	return hystrix.CommandConfig{
		Timeout:                1000, // ms
		MaxConcurrentRequests:  10,
		RequestVolumeThreshold: 20,
		ErrorPercentThreshold:  50,
		SleepWindow:            5000, // ms
	}
}

func hystrixBefore(ctx context.Context, fetch func(context.Context) (int, error)) (int, error) {
	prices := make(chan int, 1)
	err := hystrix.DoC(ctx, "prices", func(ctx context.Context) error {
		price, err := fetch(ctx)
		if err == nil {
			prices <- price
		}
		return err
	}, nil)
	if err != nil {
		return 0, err
	}
	return <-prices, nil
}

func pricesGate() (*spillway.Gate, error) {
	limit, err := limiter.New(limiter.Concurrency{Limit: 10})
	if err != nil {
		return nil, err
	}
	brk, err := breaker.New(&breaker.Options{
		Name:        "prices",
		MinCalls:    20,
		FailureRate: 0.5,
		Consecutive: breaker.Off, // hystrix-go has only the rate
		OpenFor:     5 * time.Second,
		Probes:      1,
	})
	if err != nil {
		return nil, err
	}
	return spillway.New(limit, brk), nil
}

func hystrixAfter(ctx context.Context, gate *spillway.Gate, fetch func(context.Context) (int, error)) (price int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err = spillway.Do(ctx, gate, spillway.Request{}, func(ctx context.Context) error {
		price, err = fetch(ctx)
		return err
	})
	return price, err
}

// A call is one way to ask for the price.
type call func(fetch func(context.Context) (int, error)) (int, error)

// hystrixPair returns both programs, each with a new breaker. hystrix-go owns a goroutine for each command that never ends, so
// these tests run in real time.
func hystrixPair(t *testing.T) map[string]call {
	t.Helper()
	hystrix.Flush()
	hystrix.ConfigureCommand("prices", pricesCommand())
	gate, err := pricesGate()
	require.NoError(t, err)
	return map[string]call{
		"before": func(fetch func(context.Context) (int, error)) (int, error) { return hystrixBefore(t.Context(), fetch) },
		"after": func(fetch func(context.Context) (int, error)) (int, error) {
			return hystrixAfter(t.Context(), gate, fetch)
		},
	}
}

// open fails until the breaker refuses: hystrix-go counts in the background.
func (c call) open(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := c(func(context.Context) (int, error) { return 0, errDown })
		return !errors.Is(err, errDown)
	}, 5*time.Second, time.Millisecond)
}

func TestHystrixOpens(t *testing.T) {
	for name, prices := range hystrixPair(t) {
		price, err := prices(func(context.Context) (int, error) { return 7, nil })
		require.NoError(t, err, name)
		require.Equal(t, 7, price, name)
		prices.open(t)
		_, err = prices(func(context.Context) (int, error) { panic("open") })
		require.Equal(t, name == "before", errors.Is(err, hystrix.ErrCircuitOpen), "%s: %v", name, err)
		require.Equal(t, name == "after", errors.Is(err, spillway.ErrRejected), "%s: %v", name, err)
	}
}

// A success of a call that began before the breaker opened closes hystrix-go's.
func TestHystrixStraggler(t *testing.T) {
	for name, prices := range hystrixPair(t) {
		began, release, ended := make(chan struct{}), make(chan struct{}), make(chan error)
		go func() {
			_, err := prices(func(context.Context) (int, error) {
				close(began)
				<-release
				return 7, nil
			})
			ended <- err
		}()
		<-began
		prices.open(t)
		close(release)
		require.NoError(t, <-ended, name)
		refused := func() bool {
			_, err := prices(func(context.Context) (int, error) { return 7, nil })
			return err != nil
		}
		if name == "before" {
			require.Eventually(t, func() bool { return !refused() }, 2*time.Second, time.Millisecond, "its sleep window is 5 s")
		} else {
			require.True(t, refused())
		}
	}
}

// Refusals for too many calls at once open hystrix-go's breaker.
func TestHystrixCountsItsRefusals(t *testing.T) {
	for name, prices := range hystrixPair(t) {
		release, ended := make(chan struct{}), make(chan error, 10)
		began := make(chan struct{}, 10)
		for range 10 {
			go func() {
				_, err := prices(func(context.Context) (int, error) {
					began <- struct{}{}
					<-release
					return 7, nil
				})
				ended <- err
			}()
		}
		for range 10 {
			<-began
		}
		if name == "before" {
			require.Eventually(t, func() bool {
				_, err := prices(func(context.Context) (int, error) { return 7, nil })
				return errors.Is(err, hystrix.ErrCircuitOpen)
			}, time.Second, time.Millisecond)
		} else {
			for range 100 {
				_, err := prices(func(context.Context) (int, error) { return 7, nil })
				require.ErrorIs(t, err, spillway.ErrRejected)
			}
		}
		close(release)
		for range 10 {
			require.NoError(t, <-ended, name)
		}
		if name == "after" {
			_, err := prices(func(context.Context) (int, error) { return 7, nil })
			require.NoError(t, err, "the breaker is closed")
		}
	}
}

// hystrix-go returns at its timeout, while the function goes on. Do returns with the function.
func TestHystrixTimeout(t *testing.T) {
	for name, prices := range hystrixPair(t) {
		if name == "before" { // 1 s would be real
			config := pricesCommand()
			config.Timeout = 10
			hystrix.ConfigureCommand("prices", config)
		}
		release, ended := make(chan struct{}), make(chan error)
		go func() {
			_, err := prices(func(context.Context) (int, error) { <-release; return 7, nil })
			ended <- err
		}()
		if name == "before" {
			require.ErrorIs(t, <-ended, hystrix.ErrTimeout)
			close(release)
			continue
		}
		select {
		case err := <-ended:
			require.Fail(t, "it did not wait for the function", "%v", err)
		case <-time.After(20 * time.Millisecond): // that nothing happens takes time to see
		}
		close(release)
		require.NoError(t, <-ended)
	}
}

// Calls that hang until the deadline of the caller are not errors of hystrix-go.
func TestHystrixDeadline(t *testing.T) {
	hystrix.Flush()
	hystrix.ConfigureCommand("prices", pricesCommand())
	gate, err := pricesGate()
	require.NoError(t, err)
	hang := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
	for range 20 { // in real time, so 5 ms each
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := hystrixBefore(ctx, hang)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
	}
	_, err = hystrixBefore(t.Context(), func(context.Context) (int, error) { return 7, nil })
	require.NoError(t, err)

	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			_, err := hystrixAfter(ctx, gate, hang)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		_, err := hystrixAfter(t.Context(), gate, func(context.Context) (int, error) { return 7, nil })
		require.ErrorIs(t, err, spillway.ErrRejected)
	})
}
