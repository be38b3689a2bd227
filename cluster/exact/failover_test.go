package exact

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// askers ask a limit all the time, and count.
type askers struct {
	limit    *Limit
	taken    atomic.Int64 // tokens that Redis gave
	refused  atomic.Int64 // by Redis, or from memory
	odd      atomic.Int64 // errors, and answers of whoever should not give any
	lost     atomic.Int64
	lastLost atomic.Pointer[time.Time]
	stop     atomic.Bool
	all      sync.WaitGroup
}

func ask(t *testing.T, l *Limit, callers int) *askers {
	a := &askers{limit: l}
	for range callers {
		a.all.Go(func() {
			for ; !a.stop.Load(); time.Sleep(time.Millisecond) { // a real network keeps real time
				a.one(t)
			}
		})
	}
	return a
}

func (a *askers) one(t *testing.T) {
	r, err := a.limit.Take(t.Context(), "k", 1)
	switch {
	case err != nil || r.Err == nil && r.Source != cluster.FromRedis && r.Source != cluster.FromMemory || r.Err != nil && r.Allowed:
		a.odd.Add(1)
	case r.Err != nil:
		a.lost.Add(1)
		now := time.Now()
		a.lastLost.Store(&now)
	case r.Allowed:
		a.taken.Add(1)
	default:
		a.refused.Add(1)
	}
}

func (a *askers) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 20*time.Second, time.Millisecond, what)
}

// A replica that lags takes over while a limit is asked. What was taken and had not reached it is let through once more, and nothing
// else; while the servers change, Fallback decides, and when that is over nobody gets an error.
func TestLimitFailover(t *testing.T) {
	t.Parallel()
	const limit = 800
	s := redistest.Start(t)
	link, p := redistest.NewProxy(t, s.Addr()), redistest.NewProxy(t, s.Addr())
	replica := redistest.Replica(t, link.Addr())
	l := newLimit(t, redistest.NewClient(t, p.Addr()), Options{
		Rules: []limiter.Rule{limiter.FixedWindow{Limit: limit, Period: time.Hour}}, Fallback: cluster.RefuseAll, Timeout: time.Second,
		Breaker: &breaker.Options{Consecutive: 1, OpenFor: 10 * ms, MaxOpen: 20 * ms},
	})
	s.Do("SET", "online", 1) // it takes up to a second until a server sends a new replica anything
	require.Eventually(t, func() bool { return replica.Client().Exists(t.Context(), "online").Val() == 1 }, 20*time.Second, time.Millisecond)
	a := ask(t, l, 4)
	knows := func() int64 { // the replica
		v, _ := replica.Client().Get(t.Context(), l.keys("k")[0]).Bytes()
		if len(v) != 16 {
			return 0
		}
		return int64(math.Float64frombits(binary.LittleEndian.Uint64(v[8:])))
	}
	a.until(t, "some tokens, also there", func() bool { return a.taken.Load() >= 50 && knows() >= 50 })
	link.BlackHole(true) // from here on the replica lags
	more := a.taken.Load() + 100
	a.until(t, "some more", func() bool { return a.taken.Load() >= more })
	require.Zero(t, a.lost.Load())
	s.Kill()
	p.SetTarget(replica.Addr()) // which refuses to write, until it is promoted
	p.Reset()
	before := a.lost.Load()
	a.until(t, "answers instead of Redis", func() bool { return a.lost.Load() > before })
	unknown := a.taken.Load() - knows()
	replica.Promote()
	promoted := time.Now()
	a.until(t, "a refusal", func() bool { return a.refused.Load() > 100 })
	a.stop.Store(true)
	a.all.Wait()
	t.Logf("%d taken of %d, %d of them unknown to the replica; %d answers without Redis, the last %v after the promotion",
		a.taken.Load(), limit, unknown, a.lost.Load(), a.lastLost.Load().Sub(promoted))
	require.Zero(t, a.odd.Load(), "an error, or an answer by chance")
	require.LessOrEqual(t, a.taken.Load(), limit+unknown)
	require.Greater(t, a.taken.Load(), int64(limit), "the replica lagged")
	require.Less(t, a.lastLost.Load().Sub(promoted), 2*time.Second)
	after := a.lost.Load()
	for range 20 {
		a.one(t)
	}
	require.Equal(t, after, a.lost.Load())
}
