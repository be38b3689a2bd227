package migrate

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	zerobreaker "github.com/zeromicro/go-zero/core/breaker"
	zerolimit "github.com/zeromicro/go-zero/core/limit"
	"github.com/zeromicro/go-zero/core/load"
	"github.com/zeromicro/go-zero/core/logx"
	zeroredis "github.com/zeromicro/go-zero/core/stores/redis"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/bench/internal/redisserver"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

func goZeroShedder() load.Shedder {
	return load.NewAdaptiveShedder(load.WithCpuThreshold(900))
}

func goZeroShed(shed load.Shedder, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		promise, err := shed.Allow()
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer promise.Pass()
		next.ServeHTTP(w, r)
	})
}

func shedderAfter() (*shedder.Shedder, error) {
	return shedder.New(&shedder.Options{CPUThreshold: 0.9})
}

func shedAfter(shed *shedder.Shedder, next http.Handler) http.Handler {
	return httpgate.Handler(spillway.New(shed), nil)(next)
}

func goZeroDo(brk zerobreaker.Breaker, call func() error) error {
	return brk.DoWithFallback(call, func(error) error {
		return nil // the fallback: call did not run
	})
}

func throttleLikeGoZero() (*breaker.Throttle, error) {
	return breaker.NewThrottle(&breaker.ThrottleOptions{K: 1.5, Window: 10 * time.Second, MinRequests: 5})
}

func throttleDo(ctx context.Context, gate *spillway.Gate, call func() error) error {
	err := spillway.Do(ctx, gate, spillway.Request{}, func(context.Context) error { return call() })
	if errors.Is(err, spillway.ErrRejected) {
		return nil // the fallback: call did not run
	}
	return err
}

func goZeroTokens(store *zeroredis.Redis) *zerolimit.TokenLimiter {
	return zerolimit.NewTokenLimiter(10, 20, store, "exports")
}

func tokensAfter(client redis.UniversalClient) (*exact.Limit, error) {
	return exact.New(&exact.Options{
		Client: client,
		Name:   "exports",
		Rules:  []limiter.Rule{limiter.Bucket{Rate: limiter.Per(10, time.Second), Burst: 20}},
		Nodes:  4, // without Redis, each of four processes allows a quarter
	})
}

// fullCPU is a CPU that is always busy.
type fullCPU struct{}

func (fullCPU) Sample(now time.Time) stats.CPUSample {
	return stats.CPUSample{Usage: 1, Smoothed: 1, Limit: 1, Time: now, Samples: 1}
}

// A schedWait is how long goroutines wait for a processor.
type schedWait time.Duration

func (w schedWait) Sample(now time.Time) stats.SchedSample {
	return stats.SchedSample{Value: time.Duration(w), Time: now, Count: 1, Samples: 1}
}

// With a full CPU, a thousand requests come within a second, and the service answers none of them.
func TestGoZeroShedder(t *testing.T) {
	logx.Disable()
	shed, err := shedderAfter()
	require.NoError(t, err)
	require.InDelta(t, 0.9, shed.Options().CPUThreshold, 0)
	require.NotNil(t, goZeroShedder())
	for name, guard := range map[string]func(http.Handler) http.Handler{
		"before": func(next http.Handler) http.Handler {
			return goZeroShed(load.NewAdaptiveShedder(load.WithCpuThreshold(0)), next) // any usage is too much
		},
		"after": func(next http.Handler) http.Handler {
			return shedAfter(spillway.Must(shedder.New(&shedder.Options{CPU: fullCPU{}, Sched: schedWait(50 * time.Millisecond), MinLimit: 16})), next)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			h := guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
			answers := make(chan *httptest.ResponseRecorder, 1000)
			for range 1000 {
				go func() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
					answers <- w
				}()
				time.Sleep(time.Millisecond)
			}
			defer func() {
				close(release)
				synctest.Wait()
			}()
			if name == "before" {
				require.Empty(t, answers, "all are admitted")
			} else {
				require.GreaterOrEqual(t, len(answers), 1000-32, "the limit is 16 as soon as it is in force")
				w := <-answers
				require.Equal(t, http.StatusServiceUnavailable, w.Code)
				require.NotEmpty(t, w.Header().Get("Retry-After"))
			}
		})
	}
}

// goZeroEra makes the time of the bubble later than the start of the process, as go-zero expects.
func goZeroEra() { time.Sleep(100 * 365 * 24 * time.Hour) }

// An outage of 20 s at 100 calls per second, then calls succeed.
func TestGoZeroBreaker(t *testing.T) {
	logx.Disable()
	synctest.Test(t, func(t *testing.T) {
		goZeroEra()
		old := zerobreaker.NewBreaker()
		throttle, err := throttleLikeGoZero()
		require.NoError(t, err)
		gate := spillway.New(throttle)
		for name, do := range map[string]func(func() error) error{
			"before": func(call func() error) error { return goZeroDo(old, call) },
			"after":  func(call func() error) error { return throttleDo(t.Context(), gate, call) },
		} {
			ran := func(second time.Duration, result error) (calls int) {
				for range int(100 * second) {
					err := do(func() error { calls++; return result })
					require.True(t, err == nil || errors.Is(err, result), name)
					time.Sleep(10 * time.Millisecond)
				}
				return calls
			}
			require.Equal(t, 1000, ran(10, nil), name)
			require.Less(t, ran(20, errDown), 1300, name)
			ran(5, nil)
			later := ran(2, nil) // go-zero: 104
			require.Equal(t, name == "after", later == 200, "%s: %d of 200 calls, five seconds after the outage", name, later)
		}
	})
}

func TestGoZeroBreakerCancelled(t *testing.T) {
	logx.Disable()
	synctest.Test(t, func(t *testing.T) {
		goZeroEra()
		old := zerobreaker.NewBreaker()
		throttle, err := throttleLikeGoZero()
		require.NoError(t, err)
		gate := spillway.New(throttle)
		ran := map[string]int{}
		for name, do := range map[string]func(context.Context, func() error) error{
			"before": func(_ context.Context, call func() error) error { return old.Do(call) },
			"after":  func(ctx context.Context, call func() error) error { return throttleDo(ctx, gate, call) },
		} {
			for range 1000 {
				ctx, cancel := context.WithCancel(t.Context())
				_ = do(ctx, func() error {
					ran[name]++
					cancel() // the caller leaves
					return ctx.Err()
				})
				cancel()
				time.Sleep(10 * time.Millisecond)
			}
		}
		require.Less(t, ran["before"], 500)
		require.Equal(t, 1000, ran["after"])
	})
}

func TestGoZeroTokens(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("SKIPPED: no redis-server on this machine (apt-get install redis-server, brew install redis)")
	}
	logx.Disable()
	server, err := redisserver.Open(t.Context(), "")
	require.NoError(t, err)
	defer server.Close()
	old := goZeroTokens(zeroredis.New(server.Addr))
	limit, err := tokensAfter(server.Client)
	require.NoError(t, err)
	now := time.Now()
	for range 20 {
		require.True(t, old.AllowN(now, 1))
	}
	require.False(t, old.AllowN(now, 1))
	require.True(t, old.AllowN(now.Add(time.Hour), 20), "a process whose clock is an hour ahead")

	passed, _, late := takes(t, limit, 40)
	if late == 0 {
		require.GreaterOrEqual(t, passed, 20)
	}

	// The difference: without Redis, each process of go-zero allows the whole limit.
	server.Kill()
	began := time.Now()
	require.True(t, old.AllowN(began, 20))
	_, granted, _ := takes(t, limit, 20)
	require.LessOrEqual(t, float64(granted), 5+2.5*time.Since(began).Seconds()+1)
	if late == 0 {
		require.GreaterOrEqual(t, granted, 5)
	}
	require.NoError(t, server.Start(t.Context()), "go-zero asks until Redis answers")
}

// takes asks n times. It returns how many tokens Redis gave, how many this process gave alone, and how often Redis did not
// answer in time, which also happens on a busy machine.
func takes(t *testing.T, limit *exact.Limit, n int) (passed, alone, late int) {
	t.Helper()
	begin := time.Now()
	for range n {
		res, err := limit.Take(t.Context(), "", 1)
		require.NoError(t, err)
		switch {
		case res.Err != nil && res.Allowed:
			alone++
			late++
		case res.Err != nil:
			late++
		case res.Allowed:
			passed++
		}
	}
	require.LessOrEqual(t, float64(passed), 20+10*time.Since(begin).Seconds()+1)
	return passed, alone, late
}
