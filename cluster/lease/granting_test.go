package lease

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// A holdUp is a hook of a client that holds up one call of an operation of the script, before it is sent or after its
// reply has come.
type holdUp struct {
	op         string
	afterReply bool
	taken      atomic.Bool
	held, open chan struct{} // closed when the call is held up, and to let it go on
}

func (h *holdUp) around(send func() error, cmds ...redis.Cmder) error {
	ours := func(c redis.Cmder) bool { return slices.Contains(c.Args(), any(h.op)) }
	if !slices.ContainsFunc(cmds, ours) || h.taken.Swap(true) {
		return send()
	}
	if h.afterReply {
		defer func() { close(h.held); <-h.open }()
		return send()
	}
	close(h.held)
	<-h.open
	return send()
}

// DialHook changes nothing.
func (h *holdUp) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook may hold up a single call.
func (h *holdUp) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.around(func() error { return next(ctx, cmd) }, cmd)
	}
}

// ProcessPipelineHook may hold up a pipeline.
func (h *holdUp) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.around(func() error { return next(ctx, cmds) }, cmds...)
	}
}

// A key becomes leased while one of its requests is on its way to Redis. Redis refuses the request, because this very
// process holds all tokens by then. The request passes all the same, whether the grant or the refusal arrives first. If
// the grant never arrives, the request is refused when its time is up.
func TestLimitFindsTheTokensItWasGranted(t *testing.T) {
	t.Parallel()
	const each = 100 // tokens per request: many, so that the process asks for the whole rate
	for _, c := range []struct {
		name    string
		h       *holdUp
		timeout time.Duration
		passes  bool
	}{
		{"the grant arrives first", &holdUp{op: "take"}, 20 * time.Second, true},
		{"the refusal arrives first", &holdUp{op: "sync", afterReply: true}, 20 * time.Second, true},
		{"the grant never arrives", &holdUp{op: "sync", afterReply: true}, time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := c.h
			h.held, h.open = make(chan struct{}), make(chan struct{})
			s := redistest.Start(t)
			s.Do("SET", "spillway:quota:leases", 1) // it has been in use
			client := clientOf(t, s.Addr())
			q := newQuota(t, Options{
				Client: client, Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second)},
				Interval: 20 * time.Second, Timeout: c.timeout, // nothing but the first lease happens
			})
			take := func() <-chan cluster.Result {
				result := make(chan cluster.Result, 1)
				go func() {
					r, err := q.Take(t.Context(), "k", each)
					if err != nil {
						r.Err = err
					}
					result <- r
				}()
				return result
			}
			for range promptly - 1 { // the next one makes the process ask for a lease
				require.Equal(t, cluster.FromRedis, (<-take()).Source)
			}
			refused := func() bool { return q.known("k").dry.Load() }
			client.AddHook(h)
			first := take()
			late := first
			<-h.held
			if h.afterReply {
				late = take()
				until(t, "Redis to refuse", refused)
			} else {
				until(t, "a lease", func() bool { st, _ := q.KeyStats("k"); return st.Grant > 0 })
			}
			if c.passes {
				close(h.open)
			} else {
				defer close(h.open)
			}
			r := <-late
			require.NoError(t, r.Err)
			require.True(t, refused(), "by Redis")
			require.Equal(t, c.passes, r.Allowed)
			if c.passes {
				require.Equal(t, cluster.FromLease, r.Source)
				require.Zero(t, q.Stats().RefusedTokens)
			} else {
				want := each
				if r := <-first; !r.Allowed { // it asked Redis after the lease was granted there
					want += each
				}
				require.EqualValues(t, want, q.Stats().RefusedTokens)
			}
		})
	}
}
