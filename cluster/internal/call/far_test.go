package call

import (
	"context"
	"errors"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

// No call takes longer than Timeout, whatever the network does and however many round trips a new connection takes.
func TestTimeoutIsTheLongestThatACallTakes(t *testing.T) {
	const timeout = 500 * time.Millisecond
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	for kind, client := range redistest.Clients(t, proxy.Addr()) {
		c := mustConn(t, Options{Client: client, Timeout: timeout, Breaker: &breaker.Options{Consecutive: 1 << 20}})
		proxy.SetLatency(400 * time.Millisecond) // a new connection takes three round trips and more
		var took []time.Duration
		for i := range 8 {
			if proxy.Reset(); i == 6 {
				proxy.BlackHole(true)
			}
			began := time.Now()
			_, _ = c.Run(t.Context(), incr(), []string{"n"}, 1)
			took = append(took, time.Since(began))
		}
		proxy.Heal()
		slices.Sort(took)
		t.Logf("%s: %v", kind, took)
		require.Less(t, took[len(took)-3], 2*timeout, "Timeout, and room for a busy machine; two may be later still")
	}
}

// A laggard is a client's call that takes a time at random, whatever its context says.
type laggard struct{ most time.Duration }

func (l laggard) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l laggard) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error {
		time.Sleep(time.Duration(mathrand.Int64N(int64(l.most))))
		return errors.New("late")
	}
}

func (l laggard) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return l.ProcessHook(nil)(ctx, cmds[0]) }
}

// In virtual time Timeout is exact: one by one, in pipelines, and where more callers come than calls may go on.
func TestTimeoutIsExact(t *testing.T) {
	client := redistest.NewClient(t, "127.0.0.1:1")
	client.AddHook(laggard{most: time.Second})
	synctest.Test(t, func(t *testing.T) {
		c := mustConn(t, Options{Client: client, Breaker: &breaker.Options{Consecutive: breaker.Off, FailureRate: breaker.Off}})
		s := incr()
		var all sync.WaitGroup
		var late, full atomic.Int64
		for i := range 2 * MaxFlights {
			all.Go(func() {
				for range 5 {
					began := time.Now()
					if i%2 == 0 {
						_, _ = c.Run(t.Context(), s, []string{"n"}, 1)
					} else {
						_, _ = c.RunAll(t.Context(), s, [][]any{s.Command([]string{"n"}, []any{1})})
					}
					switch took := time.Since(began); {
					case took > DefaultTimeout:
						late.Add(1)
					case took == DefaultTimeout:
						full.Add(1)
					}
				}
			})
		}
		all.Wait()
		require.Zero(t, late.Load())
		require.Positive(t, full.Load())
		time.Sleep(2 * time.Second) // for calls whose callers have left
	})
}

// In real time the machine adds to it. SPILLWAY_LONG=1 makes enough calls for a p99.9.
func TestTimeoutInRealTime(t *testing.T) {
	long := os.Getenv("SPILLWAY_LONG") != ""
	lasts := time.Second
	if long {
		lasts = 10 * time.Second
	}
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	for kind, client := range redistest.Clients(t, proxy.Addr()) {
		c := mustConn(t, Options{Client: client, Breaker: &breaker.Options{Consecutive: breaker.Off, FailureRate: breaker.Off}})
		var mu sync.Mutex
		var over []time.Duration // by how much calls exceeded Timeout
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for end := time.Now().Add(lasts); time.Now().Before(end); {
					began := time.Now()
					_, _ = c.Run(t.Context(), incr(), []string{"n"}, 1)
					took := time.Since(began) - DefaultTimeout
					mu.Lock()
					over = append(over, took)
					mu.Unlock()
				}
			})
		}
		stop := make(chan struct{})
		faults := make(chan struct{})
		var machine time.Duration // the most by which it wakes a goroutine late that does nothing else
		all.Go(func() {
			for end := time.Now().Add(lasts); time.Now().Before(end); {
				began := time.Now()
				redistest.Pause(10 * time.Millisecond)
				machine = max(machine, time.Since(began)-10*time.Millisecond)
			}
		})
		go func() {
			defer close(faults)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
				proxy.SetLatency(time.Duration(i%5) * 40 * time.Millisecond)
				proxy.BlackHole(i%4 == 3)
				if i%9 == 0 {
					proxy.Reset()
				}
			}
		}()
		all.Wait()
		close(stop)
		<-faults
		proxy.Heal()
		slices.Sort(over)
		p999, most := over[len(over)*999/1000], over[len(over)-1]
		reached, _ := slices.BinarySearch(over, 0)
		require.Greater(t, len(over)-reached, 40, "calls that Timeout ended")
		t.Logf("%s: %d calls, p99.9 of what exceeds Timeout %v, the most %v, of the machine %v", kind, len(over), p999, most, machine)
		if long {
			require.Less(t, p999, 5*time.Millisecond+machine)
		}
		require.Less(t, most, 50*time.Millisecond+2*machine)
	}
}

// A call that Redis was never sent, since its caller had gone, is never sent afterwards either.
func TestCallsThatWereGivenUpAreNotSent(t *testing.T) {
	addr := redistest.Start(t).Addr()
	direct := redistest.NewClient(t, addr)
	proxy := redistest.NewProxy(t, addr)
	proxy.SetLatency(100 * time.Millisecond)
	for kind, client := range redistest.Clients(t, proxy.Addr()) {
		require.NoError(t, direct.FlushAll(t.Context()).Err())
		c := mustConn(t, Options{Client: client, Timeout: 50 * time.Millisecond})
		_, err := c.Run(t.Context(), incr(), []string{"n"}, 1) // the connection takes far longer
		require.ErrorAs(t, err, new(*cluster.RedisError))
		require.Never(t, func() bool { return direct.Exists(t.Context(), "n").Val() != 0 }, 600*time.Millisecond, 20*time.Millisecond, kind)
		redistest.Await(t, 10*time.Second, func() bool { return client.PoolStats().IdleConns > 0 })
	}
}

// A flood of callers waits for the connections of the client, which is not Redis's fault: its breaker stays closed.
func TestFloodOfCallersLeavesTheBreakerClosed(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	for kind, o := range map[string]*redis.Options{
		"default":        {Addr: proxy.Addr(), PoolSize: 4},
		"with deadlines": {Addr: proxy.Addr(), PoolSize: 4, ContextTimeoutEnabled: true},
		"short wait":     {Addr: proxy.Addr(), PoolSize: 4, PoolTimeout: 100 * time.Millisecond},
	} {
		t.Run(kind, func(t *testing.T) {
			client := redis.NewClient(o)
			defer client.Close()
			proxy.Heal()
			c := mustConn(t, Options{Client: client, Timeout: 2 * time.Second})
			_, err := c.Run(t.Context(), incr(), []string{"n"}, 1)
			require.NoError(t, err)
			proxy.SetLatency(100 * time.Millisecond) // so there is an answer for 80 of them in time
			var busy, answered, other atomic.Int64
			var all sync.WaitGroup
			for range 300 {
				all.Go(func() {
					_, err := c.Run(context.Background(), incr(), []string{"n"}, 1)
					var lost *cluster.RedisError
					switch {
					case err == nil:
						answered.Add(1)
					case errors.As(err, &lost) && lost.Reason == "no free connection":
						busy.Add(1)
					default:
						other.Add(1)
					}
				})
			}
			all.Wait()
			t.Logf("answered %d, busy %d, other %d; %d refused by the breaker", answered.Load(), busy.Load(), other.Load(), c.Breaker.Stats().Refused)
			require.Positive(t, answered.Load())
			require.Greater(t, busy.Load(), int64(150))
			require.Zero(t, c.Breaker.Stats().Refused)
			require.Equal(t, breaker.Closed, c.Breaker.Stats().State)
			_, err = c.Run(t.Context(), incr(), []string{"n"}, 1)
			require.NoError(t, err)
		})
	}
}
