package limiter

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A table is a map, whatever comes, goes, and collides.
func TestTableAgainstMap(t *testing.T) {
	seeds(t, 12, func(t *testing.T, rng *rand.Rand) {
		most := 1 + rng.IntN(300)
		tab := newTable[int](most)
		want := map[fingerprint]int{}
		sh := &tab.shards[0]
		for i := range 3000 {
			// Few homes, so that there are long runs, also around the end.
			id := fingerprint(rng.Uint64N(12)<<20|rng.Uint64N(40)<<2) | occupied
			s := sh.find(id)
			v, ok := want[id]
			same(t, ok, s != nil, i)
			switch {
			case ok && rng.IntN(2) == 0:
				same(t, v, s.state, i)
				s.state = i
				want[id] = i
			case !ok && rng.IntN(3) == 0:
				if s = sh.insert(tab, id, int64(i), func(*int) bool { return false }); s == nil {
					require.Len(t, want, most)
					break
				}
				s.state = i
				want[id] = i
			default:
				limit := i - 500
				before := sh.tally.evicted
				sh.forget(tab, handSteps, int64(i), func(v *int) bool { return *v < limit }, rng.IntN(2) == 0)
				for id, v := range want {
					if sh.used == len(want) && i%32 != 0 {
						break // nothing has gone, or so it says
					}
					if sh.find(id) == nil {
						same(t, true, v < limit, i)
						delete(want, id)
						before++
					}
				}
				same(t, before, sh.tally.evicted, i)
			}
			same(t, len(want), sh.used, i)
			same(t, int64(len(want)), tab.keys.Load(), i)
		}
		for id, v := range want {
			require.Equal(t, v, sh.find(id).state)
		}
	})
}

// A new key whose shard has nothing to forget finds room in another, unless somebody works there: nobody waits.
func TestTableMakesRoomBesides(t *testing.T) {
	tab := newTable[int](64)
	require.Len(t, tab.shards, 8)
	id := func(shard, i int) fingerprint { return fingerprint(shard)<<48 | fingerprint(i)<<2 | occupied }
	busy := func(*int) bool { return false }
	idle := func(*int) bool { return true }
	empty, full := &tab.shards[1], &tab.shards[7]
	for i := range 64 {
		require.NotNil(t, full.insert(tab, id(7, i), 1, busy))
	}
	at := int64(1)
	next := func(step int64, idle func(*int) bool) *slot[int] {
		at += step
		return empty.insert(tab, id(1, 0), at, idle)
	}
	require.Nil(t, next(besideEvery, busy), "none may be forgotten")
	require.Nil(t, next(besideEvery-1, idle), "nothing was found just now")
	full.mu.Lock()
	require.Nil(t, next(1, idle), "whoever works there is not waited for")
	full.mu.Unlock()
	require.NotNil(t, next(-1, idle), "a clock that goes back waits for nothing")
	require.NotNil(t, empty.find(id(1, 0)))
	require.Equal(t, 1, empty.used)
	require.Equal(t, int64(full.used+1), tab.keys.Load())
	require.Equal(t, int64(64-full.used), full.tally.evicted, "counted where it was forgotten")
	require.Equal(t, []int64{0, at}, []int64{empty.last, full.last}, "where a stale clock may ask for it")
	require.True(t, full.mu.TryLock(), "the lock is given back")
}

// However many come at once to a small table that is full, it holds no more than it may, and none waits for another for good.
func TestTableUnderContention(t *testing.T) {
	tab := newTable[int](40)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 3000 {
				sh, id := tab.lock(strconv.Itoa(g<<16 | i))
				if sh.find(id) == nil {
					sh.insert(tab, id, int64(i)*besideEvery, func(*int) bool { return i%3 != 0 })
				}
				sh.mu.Unlock()
			}
		})
	}
	all.Wait()
	used := 0
	for i := range tab.shards {
		used += tab.shards[i].used
	}
	require.Equal(t, int64(used), tab.keys.Load())
	require.LessOrEqual(t, used, 40)
}
