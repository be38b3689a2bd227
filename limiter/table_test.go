package limiter

import (
	"math/rand/v2"
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
				before := sh.tally.forgotten
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
				same(t, before, sh.tally.forgotten, i)
			}
			same(t, len(want), sh.used, i)
			same(t, int64(len(want)), tab.keys.Load(), i)
		}
		for id, v := range want {
			require.Equal(t, v, sh.find(id).state)
		}
	})
}
