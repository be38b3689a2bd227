package migrate

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func newFailsafe() circuitbreaker.CircuitBreaker[int] {
	return circuitbreaker.NewBuilder[int]().
		WithFailureRateThreshold(0.5, 20, 10*time.Second).
		WithDelay(5 * time.Second).
		WithSuccessThreshold(3).
		Build()
}

func failsafeBefore(ctx context.Context, brk circuitbreaker.CircuitBreaker[int], fetch func() (int, error)) (int, error) {
	return failsafe.With[int](brk).WithContext(ctx).Get(fetch)
}

func breakerLikeFailsafe() (*breaker.Breaker, error) {
	return breaker.New(&breaker.Options{
		FailureRate: 0.5,
		MinCalls:    20,
		Window:      10 * time.Second,
		Consecutive: breaker.Off, // a rate is the only rule
		OpenFor:     5 * time.Second,
		Probes:      3,
	})
}

func failsafeAfter(ctx context.Context, gate *spillway.Gate, fetch func() (int, error)) (price int, err error) {
	err = spillway.Do(ctx, gate, spillway.Request{}, func(context.Context) error {
		price, err = fetch()
		return err
	})
	return price, err
}

func adaptiveBefore(next http.Handler) http.Handler {
	return failsafehttp.NewHandler(next, adaptivelimiter.NewBuilder[*http.Response]().WithLimits(1, 200, 20).Build())
}

func adaptiveAfter(next http.Handler) (http.Handler, error) {
	limit, err := adaptive.New(&adaptive.Options{Min: 1, Max: 200, Initial: 20})
	if err != nil {
		return nil, err
	}
	return httpgate.Handler(spillway.New(limit), nil)(next), nil
}

// A fetcher is one way to call a function behind a breaker.
type fetcher struct {
	fetch  func(ctx context.Context, fetch func() (int, error)) (int, error)
	closed func() bool
}

func failsafePair(t *testing.T) map[string]fetcher {
	t.Helper()
	old := newFailsafe()
	brk, err := breakerLikeFailsafe()
	require.NoError(t, err)
	gate := spillway.New(brk)
	return map[string]fetcher{
		"before": {
			func(ctx context.Context, fetch func() (int, error)) (int, error) {
				return failsafeBefore(ctx, old, fetch)
			},
			old.IsClosed,
		},
		"after": {
			func(ctx context.Context, fetch func() (int, error)) (int, error) {
				return failsafeAfter(ctx, gate, fetch)
			},
			func() bool { return brk.Stats().State == breaker.Closed },
		},
	}
}

func up() (int, error) { return 7, nil }

func down() (int, error) { return 0, errDown }

// trip fails until the breaker opens.
func (f fetcher) trip(t *testing.T) {
	t.Helper()
	for range 20 {
		_, err := f.fetch(t.Context(), down)
		require.ErrorIs(t, err, errDown)
	}
	require.False(t, f.closed())
}

func TestFailsafeOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, f := range failsafePair(t) {
			f.trip(t)
			_, err := f.fetch(t.Context(), up)
			require.Equal(t, name == "before", errors.Is(err, circuitbreaker.ErrOpen), "%s: %v", name, err)
			require.Equal(t, name == "after", errors.Is(err, spillway.ErrRejected), "%s: %v", name, err)
			time.Sleep(6 * time.Second) // the delay, and a fifth for jitter
			for range 3 {
				price, err := f.fetch(t.Context(), up)
				require.NoError(t, err, name)
				require.Equal(t, 7, price, name)
			}
			require.True(t, f.closed(), name)
		}
	})
}

// Three calls began before the breaker opened and end while a probe runs.
func TestFailsafeStragglers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, f := range failsafePair(t) {
			release := make(chan struct{})
			for range 3 {
				go func() { _, _ = f.fetch(t.Context(), func() (int, error) { <-release; return 7, nil }) }()
			}
			synctest.Wait()
			f.trip(t)
			time.Sleep(6 * time.Second)
			end := make(chan struct{})
			go func() { _, _ = f.fetch(t.Context(), func() (int, error) { <-end; return 0, errDown }) }()
			synctest.Wait()
			close(release)
			synctest.Wait()
			require.Equal(t, name == "before", f.closed(), "%s: the probe has not ended", name)
			close(end)
			synctest.Wait()
		}
	})
}

// Probes panic. An hour later the dependency works.
func TestFailsafePanickingProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, f := range failsafePair(t) {
			f.trip(t)
			for range 3 {
				time.Sleep(time.Minute)
				require.Panics(t, func() { _, _ = f.fetch(t.Context(), func() (int, error) { panic("bug") }) }, name)
			}
			time.Sleep(time.Hour)
			_, err := f.fetch(t.Context(), up)
			require.Equal(t, name == "before", errors.Is(err, circuitbreaker.ErrOpen), "%s: %v", name, err)
			require.Equal(t, name == "after", err == nil, "%s: %v", name, err)
		}
	})
}

func TestFailsafeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, f := range failsafePair(t) {
			for range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				_, err := f.fetch(ctx, func() (int, error) { cancel(); return 0, ctx.Err() })
				require.Error(t, err, name)
			}
			require.Equal(t, name == "after", f.closed(), name)
		}
	})
}

// Twenty requests hang. The next one is refused.
func TestFailsafeServerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release })
		after, err := adaptiveAfter(slow)
		require.NoError(t, err)
		for name, h := range map[string]http.Handler{"before": adaptiveBefore(slow), "after": after} {
			for range 20 {
				go serve(h)
			}
			synctest.Wait()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			require.Equal(t, map[string]int{"before": http.StatusTooManyRequests, "after": http.StatusServiceUnavailable}[name], w.Code)
			require.Equal(t, name == "after", w.Header().Get("Retry-After") != "")
		}
		close(release)
		synctest.Wait()
	})
}

// A handler answers 500 to each of 100 requests.
func TestFailsafeServerSeesStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
		old := circuitbreaker.NewWithDefaults[*http.Response]()
		brk, err := breaker.New(nil)
		require.NoError(t, err)
		for _, h := range []http.Handler{failsafehttp.NewHandler(broken, old), httpgate.Handler(spillway.New(brk), nil)(broken)} {
			for range 100 {
				serve(h)
			}
		}
		require.True(t, old.IsClosed(), "it opens after one failure by default, and saw none")
		require.Equal(t, breaker.Open, brk.Stats().State)
	})
}

func TestFailsafeDefaults(t *testing.T) {
	old := circuitbreaker.NewWithDefaults[int]()
	_, err := failsafeBefore(t.Context(), old, down)
	require.ErrorIs(t, err, errDown)
	require.True(t, old.IsOpen())
	require.InDelta(t, time.Minute, old.RemainingDelay(), float64(30*time.Second))

	brk, err := breaker.New(nil)
	require.NoError(t, err)
	gate := spillway.New(brk)
	for range 10 {
		require.Equal(t, breaker.Closed, brk.Stats().State)
		_, err := failsafeAfter(t.Context(), gate, down)
		require.ErrorIs(t, err, errDown)
	}
	require.Equal(t, breaker.Open, brk.Stats().State)
}
