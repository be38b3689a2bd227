package places

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// One client alone gets half of the places, and each newcomer half of what is left.
func TestPlacesLeaveRoomForNewcomers(t *testing.T) {
	p := New(1000, 0)
	var got []int
	for h := range Holder(12) {
		n := 0
		for p.Take(h+1) == Granted {
			n++
		}
		got = append(got, n)
	}
	require.Equal(t, []int{500, 250, 125, 63, 31, 16, 8, 4, 2, 1, 0, 0}, got)
	require.Equal(t, Full, p.Check(1))
	for range 500 {
		p.GiveBack(1)
	}
	require.Equal(t, Granted, p.Check(12))
	require.Equal(t, int64(500), p.Taken())
	require.Equal(t, Granted, p.Take(12))
}

// Random takes and returns, against the rule in words.
func TestPlacesModel(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 0))
		limit, share := 1+rng.IntN(40), 0
		if seed >= 20 {
			share = 1 + rng.IntN(limit)
		}
		p := New(limit, share)
		held, all := map[Holder]int{}, 0
		for range 5000 {
			h := Holder(rng.IntN(20)) // 0 is unknown
			if rng.IntN(3) > 0 {
				want, may := Granted, limit-all
				if share > 0 {
					may = share
				}
				switch {
				case all >= limit:
					want = Full
				case h != 0 && held[h] >= may:
					want = OverShare
				}
				require.Equal(t, want, p.Check(h))
				require.Equal(t, want, p.Take(h))
				if want == Granted {
					held[h]++
					all++
				}
			} else if held[h] > 0 {
				p.GiveBack(h)
				held[h]--
				all--
			}
			require.Equal(t, int64(all), p.Taken())
			require.LessOrEqual(t, all, limit)
		}
		for h, n := range held {
			for range n {
				p.GiveBack(h)
			}
		}
		for i := range p.shards {
			require.Empty(t, p.shards[i].held, "clients that are gone are forgotten")
		}
	}
}

func TestPlacesUnderContention(t *testing.T) {
	p := New(8, 0)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 2000 {
				if h := Holder(1 + i%5); p.Take(h) == Granted {
					if n := p.Taken(); n > 8 {
						t.Errorf("%d of 8 places are taken", n)
					}
					p.GiveBack(h)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, p.Taken())
	require.Equal(t, Granted, p.Take(1))
}
