package migrate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/limiter"
)

func resilienceBreaker() (*breaker.Breaker, error) {
	return breaker.New(&breaker.Options{
		Name:             "prices",
		WindowCalls:      100, // slidingWindowSize, COUNT_BASED
		MinCalls:         100, // minimumNumberOfCalls
		FailureRate:      0.5, // failureRateThreshold
		Consecutive:      breaker.Off,
		SlowCall:         2 * time.Second,  // slowCallDurationThreshold
		SlowRate:         0.8,              // slowCallRateThreshold
		OpenFor:          60 * time.Second, // waitDurationInOpenState
		Probes:           10,               // permittedNumberOfCallsInHalfOpenState
		ProbeFailureRate: 0.5,
	})
}

func resilienceGate() (*spillway.Gate, error) {
	rate, err := limiter.New(limiter.Bucket{Rate: limiter.Per(50, time.Second)})
	if err != nil {
		return nil, err
	}
	bulkhead, err := limiter.New(limiter.Queue{Limit: 25, MaxQueue: 100, MaxWait: 100 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	brk, err := resilienceBreaker()
	if err != nil {
		return nil, err
	}
	return spillway.New(rate, bulkhead, brk), nil
}

func resilienceAfter(ctx context.Context, gate *spillway.Gate, fetch func(context.Context) (int, error)) (price int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // TimeLimiter
	defer cancel()
	err = spillway.Do(ctx, gate, spillway.Request{}, func(ctx context.Context) error {
		price, err = fetch(ctx)
		return err
	})
	return price, err
}

func TestResilience4j(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, err := resilienceGate()
		require.NoError(t, err)
		call := func(result error) error {
			time.Sleep(20 * time.Millisecond) // the rate
			price, err := resilienceAfter(t.Context(), gate, func(context.Context) (int, error) { return 7, result })
			require.True(t, err != nil || price == 7)
			return err
		}
		for i := range 99 {
			require.Equal(t, i%2 == 0, call(map[bool]error{true: errDown}[i%2 == 0]) != nil)
		}
		require.ErrorIs(t, call(errDown), errDown)
		require.ErrorIs(t, call(nil), spillway.ErrRejected, "51 of 100")
		time.Sleep(73 * time.Second) // and a fifth for jitter
		for i := range 10 {
			require.NotErrorIs(t, call(map[bool]error{true: errDown}[i < 4]), spillway.ErrRejected, "4 of 10 fail")
		}
		require.NoError(t, call(nil))
	})
}

// Calls that hang open the breaker before any of them has ended. The other half of the difference is in the source of
// resilience4j: a call counts when it ends.
func TestResilience4jHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		brk, err := resilienceBreaker()
		require.NoError(t, err)
		gate := spillway.New(brk)
		release := make(chan struct{})
		hang := func() error {
			return spillway.Do(t.Context(), gate, spillway.Request{}, func(context.Context) error { <-release; return nil })
		}
		for range 100 {
			go func() { _ = hang() }()
		}
		time.Sleep(4 * time.Second)
		require.ErrorIs(t, hang(), spillway.ErrRejected)
		close(release)
		synctest.Wait()
	})
}
