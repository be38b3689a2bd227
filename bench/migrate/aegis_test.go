package migrate

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kratos/aegis/circuitbreaker"
	"github.com/go-kratos/aegis/circuitbreaker/sre"
	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

func newBBR() *bbr.BBR {
	return bbr.NewLimiter(bbr.WithCPUThreshold(800))
}

func bbrBefore(limit ratelimit.Limiter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done, err := limit.Allow()
		if err != nil {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
		done(ratelimit.DoneInfo{})
	})
}

func newShedderAfter() (*shedder.Shedder, error) {
	return shedder.New(&shedder.Options{CPUThreshold: 0.8})
}

func bbrAfter(shed *shedder.Shedder, next http.Handler) http.Handler {
	return httpgate.Handler(spillway.New(shed), nil)(next)
}

func sreBefore(brk circuitbreaker.CircuitBreaker, call func() error) error {
	if err := brk.Allow(); err != nil {
		brk.MarkFailed() // as the middleware of kratos does
		return err
	}
	err := call()
	if err != nil {
		brk.MarkFailed()
	} else {
		brk.MarkSuccess()
	}
	return err
}

func throttleLikeAegis() (*breaker.Throttle, error) {
	return breaker.NewThrottle(&breaker.ThrottleOptions{K: 1 / 0.6, Window: 3 * time.Second, Buckets: 10, MinRequests: 100})
}

func sreAfter(ctx context.Context, gate *spillway.Gate, call func() error) error {
	return spillway.Do(ctx, gate, spillway.Request{}, func(context.Context) error { return call() })
}

// serve sends one request, and survives a panic of the handler as a server does.
func serve(h http.Handler) {
	defer func() { _ = recover() }()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
}

// A full CPU, 100 requests per second that take 2 ms each, then a burst of 100 requests.
func TestAegisBurst(t *testing.T) {
	shed, err := newShedderAfter()
	require.NoError(t, err)
	require.InDelta(t, 0.8, shed.Options().CPUThreshold, 0)
	require.NotNil(t, newBBR())
	for name, guard := range map[string]func(http.Handler) http.Handler{
		"before": func(next http.Handler) http.Handler {
			return bbrBefore(bbr.NewLimiter(bbr.WithCPUThreshold(0)), next) // any usage is too much
		},
		"after": func(next http.Handler) http.Handler {
			return bbrAfter(spillway.Must(shedder.New(&shedder.Options{CPU: fullCPU{}, Sched: schedWait(0)})), next)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			ran := 0
			h := guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				ran++
				time.Sleep(2 * time.Millisecond)
			}))
			for range 500 {
				serve(h)
				time.Sleep(8 * time.Millisecond)
			}
			ran = 0
			for range 100 {
				go serve(h)
				synctest.Wait()
			}
			require.Equal(t, map[string]int{"before": 2, "after": 100}[name], ran)
			time.Sleep(time.Second)
		})
	}
}

// A handler panics, and a request fails in 1 ms where the others take 50 ms.
func TestAegisFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newBBR()
		shed, err := newShedderAfter()
		require.NoError(t, err)
		n := 0
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n++
			switch {
			case n == 1:
				panic(http.ErrAbortHandler)
			case n%10 == 0:
				time.Sleep(time.Millisecond)
				w.WriteHeader(http.StatusInternalServerError)
			default:
				time.Sleep(50 * time.Millisecond)
			}
		})
		for _, h := range []http.Handler{bbrBefore(old, handler), bbrAfter(shed, handler)} {
			n = 0
			for range 100 {
				serve(h)
				time.Sleep(100 * time.Millisecond)
			}
		}
		require.EqualValues(t, 1, old.Stat().InFlight, "the request that panicked has left a place behind")
		require.EqualValues(t, 0, shed.Stats().InFlight)
		require.EqualValues(t, 1, old.Stat().MinRt, "in ms")
		require.InDelta(t, 50*time.Millisecond, shed.Stats().MinRT, float64(5*time.Millisecond))
	})
}

// An outage of 30 s at 1000 calls per second, then calls succeed.
func TestAegisSRE(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := sre.NewBreaker()
		throttle, err := throttleLikeAegis()
		require.NoError(t, err)
		gate := spillway.New(throttle)
		for name, do := range map[string]func(func() error) error{
			"before": func(call func() error) error { return sreBefore(old, call) },
			"after":  func(call func() error) error { return sreAfter(t.Context(), gate, call) },
		} {
			ran := func(seconds int, result error) (calls int) {
				for range 1000 * seconds {
					err := do(func() error { calls++; return result })
					require.True(t, err == nil || errors.Is(err, result) ||
						errors.Is(err, circuitbreaker.ErrNotAllowed) || errors.Is(err, spillway.ErrRejected), name)
					time.Sleep(time.Millisecond)
				}
				return calls
			}
			require.Equal(t, 5000, ran(5, nil), name)
			ran(10, errDown)
			down := ran(20, errDown) // aegis: about 7
			require.Equal(t, name == "after", down > 200, "%s: %d of 20000 calls found out how the dependency is", name, down)
			ran(4, nil)
			later := ran(1, nil)
			require.Equal(t, name == "after", later == 1000, "%s: %d of 1000 calls, four seconds after the outage", name, later)
		}
	})
}
