package splitmix_test

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/splitmix"
)

// The sequences of Vigna's splitmix64.c from two seeds.
func TestMixAgainstPublishedVectors(t *testing.T) {
	for seed, want := range map[uint64][]uint64{
		0: {0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec, 0x1b39896a51a8749b},
		1234567: {
			6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
		},
	} {
		state := seed
		for i, n := range want {
			state += splitmix.Gamma
			require.Equal(t, n, splitmix.Mix(state), "number %d from seed %d", i, seed)
		}
	}
	require.Zero(t, splitmix.Mix(0))
}

// A bit of the argument changes each bit of the result half of the time.
func TestMixAvalanches(t *testing.T) {
	const n = 10_000
	for bit := range 64 {
		changed := 0
		for i := range uint64(n) {
			changed += bits.OnesCount64(splitmix.Mix(i) ^ splitmix.Mix(i^1<<bit))
		}
		require.InDelta(t, 32, float64(changed)/n, 1, "bit %d", bit)
	}
}

func ExampleMix() {
	var state uint64
	for range 3 {
		state += splitmix.Gamma
		fmt.Println(splitmix.Mix(state) % 100)
	}
	// Output:
	// 35
	// 0
	// 79
}
