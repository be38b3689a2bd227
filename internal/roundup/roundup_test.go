package roundup

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWaitsAreRoundedUpALittle(t *testing.T) {
	var s Steps[int]
	check := func(wait time.Duration) {
		t.Helper()
		cell, told := s.At(wait)
		if told < wait || told > wait+wait/16+Tick {
			t.Fatalf("a wait of %v is told as %v", wait, told)
		}
		if same, _ := s.At(told); same != cell {
			t.Fatalf("the values of %v and %v are not one", wait, told)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		check(time.Duration(rng.Int64N(1 << 62 >> rng.IntN(62))))
	}
	for wait := time.Duration(0); wait < time.Second; wait += 100 * time.Microsecond {
		check(wait)
	}
	for _, exact := range []time.Duration{1, 2, 4, 8, 16, 24, 64, 4096} {
		_, told := s.At(exact * time.Second)
		require.Equal(t, exact*time.Second, told)
	}
	_, told := s.At(0)
	require.Equal(t, Tick, told)
	_, told = s.At(math.MaxInt64)
	require.Positive(t, told)
}

// However the waits vary, there are few values: none is built for each.
func TestValuesAreShared(t *testing.T) {
	var s Steps[int]
	seen := map[any]bool{}
	for wait := time.Duration(1); wait < 1<<62; wait += wait/1000 + 1000 {
		cell, _ := s.At(wait)
		seen[cell] = true
	}
	require.LessOrEqual(t, len(seen), Count)
	require.Greater(t, len(seen), Count/2)
}

func TestAtDoesNotAllocate(t *testing.T) {
	var s Steps[int]
	s.At(time.Second)
	require.Zero(t, testing.AllocsPerRun(100, func() { s.At(time.Second) }))
}
