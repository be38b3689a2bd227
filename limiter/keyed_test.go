package limiter

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
)

func newKeyed(t testing.TB, like Limiter, maxKeys int) *Keyed {
	t.Helper()
	k, err := NewKeyed(like.Rule(), &KeyedOptions{MaxKeys: maxKeys})
	require.NoError(t, err)
	return k
}

// Every key decides as a limit of its own that is never forgotten, however many keys come and go.
func TestKeyedAgainstOnePerKey(t *testing.T) {
	for name, like := range map[string]func() Limiter{
		"Bucket": func() Limiter { return newBucket(t, Per(5, time.Second), 4) },
		"Policer": func() Limiter {
			return spillway.Must(New(Bucket{Rate: Per(7, time.Minute), Burst: 3}))
		},
		"Window":  func() Limiter { return newWindow(t, FixedWindow{Limit: 4, Period: time.Second}) },
		"Day":     func() Limiter { return newWindow(t, FixedWindow{Limit: 4, Calendar: EveryMinute}) },
		"Sliding": func() Limiter { return newSliding(t, 4, time.Second, 10) },
		"Log":     func() Limiter { return newLog(t, 4, time.Second) },
		"WarmUp":  func() Limiter { return newWarmUp(t, WarmUp{Rate: Per(50, time.Second), WarmUp: time.Second}) },
	} {
		t.Run(name, func(t *testing.T) {
			seeds(t, 2, func(t *testing.T, rng *rand.Rand) {
				k := newKeyed(t, like(), 1<<16)
				alone := map[string]direct{}
				now := time.Duration(0)
				for i := range 5000 {
					now += time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
					key := fmt.Sprint(rng.IntN(10))
					if rng.IntN(3) == 0 {
						key = fmt.Sprint("junk ", i) // so that keys are forgotten
					}
					l := alone[key]
					if l == nil {
						l = like().(direct)
						align(l, k.clock)
						alone[key] = l
					}
					n := 1 + rng.IntN(2)
					same(t, l.PeekAt(after(now)), k.PeekAt(after(now), key), i)
					r := spillway.Request{Arrived: after(now), Key: key, Cost: n}
					ticket1, err1 := l.Admit(t.Context(), r)
					ticket2, err2 := k.Admit(t.Context(), r)
					same(t, err1 == nil, err2 == nil, i)
					if err1 == nil && rng.IntN(4) == 0 {
						l.Done(r, ticket1, spillway.Result{Outcome: spillway.Refused})
						k.Done(r, ticket2, spillway.Result{Outcome: spillway.Refused})
					}
				}
				require.Positive(t, k.Stats().Evicted)
				require.Less(t, k.Stats().Keys, int64(2000), "what is as good as new is forgotten")
			})
		})
	}
}

// align makes the sub-windows of l begin when those of another limit do.
func align(l direct, to clock) {
	if w, ok := l.(*limit[slidingState]); ok {
		w.clock = to
	}
}

// Whoever invents keys does not get a fresh bucket, does not make the table grow, and does not loosen anybody's limit.
func TestKeyedFlood(t *testing.T) {
	const maxKeys = 1000
	k := newKeyed(t, newBucket(t, Per(1, time.Second), 3), maxKeys)
	now := time.Duration(0)
	known := func() (passed int) {
		for i := range 10 {
			for range 5 {
				if k.AllowAt(after(now), fmt.Sprint("known ", i), 1) == nil {
					passed++
				}
			}
		}
		return passed
	}
	require.Equal(t, 30, known())
	junk, each := 0, 50_000
	if race.Enabled {
		each = 5_000 // five times as many as there is room for
	}
	var key []byte
	for second := range 20 {
		for range each {
			junk++
			key = strconv.AppendInt(append(key[:0], "junk "...), int64(junk), 10)
			_ = k.AllowAt(after(now), string(key), 1)
		}
		require.LessOrEqual(t, k.Stats().Keys, int64(maxKeys))
		require.Zero(t, known(), "second %d", second)
		now += time.Second
		require.Equal(t, 10, known(), "a token per second, not a fresh bucket")
	}
	st := k.Stats()
	require.Greater(t, st.Overflowed, int64(15*each))
	slots := 0
	for i := range k.keys.(*keyed[gcraState]).shards {
		slots += len(k.keys.(*keyed[gcraState]).shards[i].slots)
	}
	require.Less(t, slots, 4*maxKeys)

	// When the flood is over, new keys have limits of their own again, also those of a shard with nothing to forget.
	now += time.Minute
	for i := range 100 {
		for range 3 {
			require.NoError(t, k.AllowAt(after(now), fmt.Sprint("new ", i), 1))
		}
	}
	require.Equal(t, st.Overflowed, k.Stats().Overflowed)
}

// Keys take at most 150 bytes each, and ten times as many that come once take no more. BenchmarkKeyedMemory asks a million.
func TestKeyedMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("memory is not measured under the race detector: it adds its own")
	}
	for name, like := range map[string]Limiter{
		"Bucket": newBucket(t, Per(1, time.Hour), 3),
		"Window": newWindow(t, FixedWindow{Limit: 3, Calendar: EveryDay}),
	} {
		t.Run(name, func(t *testing.T) {
			const known = 100_000
			full, flooded := fillKeyed(t, like, known, 10*known)
			require.LessOrEqual(t, full, 150.0*known)
			require.InDelta(t, full, flooded, 10*known, "memory stays flat")
		})
	}
}

// fillKeyed returns the bytes that a Keyed takes for known keys, and then, when others have come as well, of whom it may have
// none forget a known one. The limit must not recover meanwhile, and have a greatest cost of 3.
func fillKeyed(t testing.TB, like Limiter, known, junk int) (full, flooded float64) {
	t.Helper()
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	k := newKeyed(t, like, known)
	var buf []byte
	now := after(0)
	ask := func(kind string, i int) bool {
		buf = strconv.AppendInt(append(buf[:0], kind...), int64(i), 10)
		return k.AllowAt(now, string(buf), 3) == nil
	}
	for i := range known {
		if !ask("known-", i) {
			t.Fatalf("key %d finds nothing left", i)
		}
	}
	full = heap() - before
	require.Equal(t, int64(known), k.Stats().Keys)
	for i := range junk {
		ask("junk-", i)
	}
	flooded = heap() - before
	for i := range known {
		if ask("known-", i) {
			t.Fatalf("key %d was forgotten", i)
		}
	}
	return full, flooded
}

// BenchmarkKeyedMemory fills a Keyed with a million keys, floods it with ten million others, and tells bytes per key.
func BenchmarkKeyedMemory(b *testing.B) {
	for b.Loop() {
		const million = 1_000_000
		full, flooded := fillKeyed(b, newBucket(b, Per(1, time.Hour), 3), million, 10*million)
		b.ReportMetric(full/million, "B/key")
		b.ReportMetric(flooded/million, "B/key-flooded")
	}
}

func TestKeyedSharesWhatItHasNoRoomFor(t *testing.T) {
	k := newKeyed(t, newConcurrency(t, 2), 1)
	ctx := t.Context()
	admit := func(key string) (func(), error) {
		r := spillway.Request{Key: key, Arrived: after(0)}
		ticket, err := k.Admit(ctx, r)
		return func() { k.Done(r, ticket, spillway.Result{}) }, err
	}
	own, err := admit("own")
	require.NoError(t, err)
	shared, err := admit("a")
	require.NoError(t, err)
	shared2, err := admit("b")
	require.NoError(t, err)
	_, err = admit("c")
	require.Equal(t, &spillway.Rejection{Policy: "concurrency", Reason: "limit reached"}, err)
	require.Equal(t, int64(3), k.Stats().Overflowed)
	require.Equal(t, State{Limit: 2}, k.PeekAt(after(0), "d"), "as the others that have no room")

	own() // now there is room, and what a and b took is still given back to where it is from
	own, err = admit("a")
	require.NoError(t, err)
	require.Equal(t, int64(1), k.Stats().Evicted)
	shared()
	shared2()
	require.Equal(t, State{Limit: 2, Remaining: 1}, k.PeekAt(after(0), "a"))
	require.Equal(t, State{Limit: 2, Remaining: 2}, k.PeekAt(after(0), "d"))
	own()
	require.Equal(t, State{Limit: 2, Remaining: 2}, k.PeekAt(after(0), "a"))
}

func TestKeyedConcurrency(t *testing.T) {
	k := newKeyed(t, newConcurrency(t, 5), 0)
	r := spillway.Request{Key: "a", Arrived: after(0), Cost: 5}
	ticket, err := k.Admit(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, k.Tune(newConcurrency(t, 2).Rule()))
	require.Equal(t, State{Limit: 2}, k.PeekAt(readClock(), "a"))
	k.Done(r, ticket, spillway.Result{Outcome: spillway.Success})
	require.Equal(t, State{Limit: 2, Remaining: 2}, k.PeekAt(readClock(), "a"), "all five, although the limit is two")
	require.True(t, k.Allow("a"))
	require.True(t, k.Allow("a"))
	require.False(t, k.Allow("a"))
	k.RefundAt(time.Now(), "a", 1)
	require.True(t, k.Allow("a"))
}

func TestKeyedSetLimit(t *testing.T) {
	k := newKeyed(t, newBucket(t, Per(1, time.Second), 10), 0)
	for i := range 100 {
		require.NoError(t, k.AllowAt(after(0), fmt.Sprint(i), i%10))
	}
	require.NoError(t, k.TuneAt(after(0), Bucket{Rate: Per(10, time.Second), Burst: 20}))
	for i := range 100 {
		require.Equal(t, int64(20-i%10), k.PeekAt(after(0), fmt.Sprint(i)).Remaining)
	}
	require.NoError(t, k.AllowAt(after(0), "new", 20))
	for _, other := range []Rule{nil, FixedWindow{Limit: 1, Period: 1}, Concurrency{Limit: 1}} {
		require.ErrorContains(t, k.TuneAt(after(0), other), "limiter: Bucket: Tune: rule must be of the same kind, got ")
	}
	require.EqualError(t, k.TuneAt(after(0), Bucket{}), "limiter: Bucket: Rate.Per must be positive, got 0s")
	require.EqualError(t, k.Tune(Bucket{Rate: Per(1, 1), Name: "b"}), `limiter: Bucket: Tune: Name must stay "token bucket", got "b"`)
	require.Equal(t, Bucket{Rate: Per(10, time.Second), Burst: 20, Name: "token bucket"}, k.Rule(), "nothing has changed")
	k = newKeyed(t, newWindow(t, FixedWindow{Limit: 1, Period: time.Minute}), 0)
	require.Error(t, k.Tune(newWindow(t, FixedWindow{Limit: 1, Calendar: EveryDay}).Rule()), "they tell differently when one starts")
	require.NoError(t, k.Tune(newWindow(t, FixedWindow{Limit: 5, Period: time.Hour}).Rule()))
	q := k.Quota(after(0), spillway.Request{Key: "a"})
	require.Equal(t, []any{"fixed window", int64(5), time.Hour}, []any{q.Name, q.Limit, q.Window})
	for _, like := range []Limiter{newSliding(t, 3, time.Second, 0), newWarmUp(t, WarmUp{Rate: Per(3, time.Second)})} {
		k := newKeyed(t, like, 0)
		require.NoError(t, k.AllowAt(after(0), "a", 1))
		require.NoError(t, k.Tune(like.Rule()))
	}
}

func TestKeyedDirectly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed(t, newBucket(t, Per(10, time.Second), 2), 0)
		require.True(t, k.Allow("a"))
		require.True(t, k.Allow("a"))
		require.False(t, k.Allow("a"))
		require.True(t, k.Allow("b"))
		begin := time.Now()
		require.NoError(t, k.Wait(t.Context(), "a", 2))
		require.Equal(t, 200*time.Millisecond, time.Since(begin))
		r, err := k.ReserveAt(readClock(), "a", 1, time.Second)
		require.NoError(t, err)
		require.Equal(t, 100*time.Millisecond, r.Delay())
		require.Equal(t, 200*time.Millisecond, k.PeekAt(readClock(), "a").NextIn)
		r.CancelAt(time.Now())
		r.CancelAt(time.Now())
		require.Equal(t, 100*time.Millisecond, k.PeekAt(readClock(), "a").NextIn)
		k.RefundAt(time.Now(), "a", 1)
		k.RefundAt(time.Now(), "unknown", 1)
		k.RefundAt(time.Now(), "a", -1)
		require.Equal(t, int64(1), k.PeekAt(readClock(), "a").Remaining)
		require.Equal(t, State{Limit: 2, Remaining: 2}, k.PeekAt(readClock(), "never seen"))
		var cost *CostError
		require.ErrorAs(t, k.AllowAt(time.Now(), "a", 3), &cost)
		require.ErrorAs(t, k.Wait(t.Context(), "a", -1), &cost)
		require.Equal(t, KeyedStats{
			Stats: Stats{Name: "token bucket", Admitted: 5, Refused: 1, ByReason: []spillway.Refusal{{Policy: "token bucket", Reason: "rate exceeded", Count: 1}}, Impossible: 2, Returned: 2}, Keys: 2, MaxKeys: 1 << 20,
		}, k.Stats())
		day := newKeyed(t, newWindow(t, FixedWindow{Limit: 1, Calendar: EveryDay}), 0)
		require.True(t, day.Allow("a"))
		require.False(t, day.Allow("a"))
		var rej *spillway.Rejection
		require.ErrorAs(t, day.AllowAt(time.Now(), "a", 1), &rej)
		midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		require.Equal(t, time.Until(midnight), rej.RetryAfter, "the day ends for all at once, so it is told exactly")
	})
}

func TestKeyedOptions(t *testing.T) {
	for want, c := range map[string]struct {
		rule Rule
		o    KeyedOptions
	}{
		"Keyed: rule must be set, got nil":                                            {},
		"Bucket: Rate.Per must be positive, got 0s":                                   {rule: Bucket{}},
		"Keyed: rule must not have requests wait, got limiter.Shaper: use a Registry": {rule: Shaper{}},
		"Keyed: rule must not have requests wait, got limiter.Queue: use a Registry":  {rule: Queue{}},
		"Keyed: MaxKeys must be in 1..2^30, got -1":                                   {rule: Bucket{Rate: Per(1, 1)}, o: KeyedOptions{MaxKeys: -1}},
		"Keyed: MaxKeys must be in 1..2^30, got 1073741825":                           {rule: Bucket{Rate: Per(1, 1)}, o: KeyedOptions{MaxKeys: 1<<30 + 1}},
	} {
		k, err := NewKeyed(c.rule, &c.o)
		require.Nil(t, k)
		require.EqualError(t, err, "limiter: "+want)
	}
}
