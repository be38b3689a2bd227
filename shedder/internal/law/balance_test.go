package law

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The width follows the offered load. Below the capacity, moments of refusals are chance, also under the tight limit that a flood has
// left: 1.6 % are refused if each of them narrows the limit. A small excess narrows it if it lasts.
func TestTheWidthFollowsTheLoad(t *testing.T) {
	const seeds, capacity = 10, 333
	at := func(load float64) (wide, refused float64) {
		for seed := range uint64(seeds) {
			p := newPlant(seed, Options{}, 8, lognormal(0.024))
			p.run(10, 150)
			p.run(3, 1000)
			p.run(30, load*capacity)
			p.reset()
			for range 200 {
				p.run(0.2, load*capacity)
				wide += p.flow.wide / seeds / 200
			}
			refused += p.share() / seeds
		}
		t.Logf("load %.2f: width %.2f, refused %.4f", load, wide, refused)
		return wide, refused
	}
	wide, refused := at(0.95)
	require.Greater(t, wide, 0.9)
	require.Less(t, refused, 0.01)
	wide, _ = at(1.1)
	require.Less(t, wide, 0.15)
}
