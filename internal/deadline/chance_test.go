package deadline

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
)

func chance(t *testing.T, least time.Duration, o *Options) *Chance {
	t.Helper()
	c, err := NewChance(least, o)
	require.NoError(t, err)
	return c
}

func TestInvalidChanceIsNamed(t *testing.T) {
	_, err := NewChance(-1, nil)
	require.EqualError(t, err, "deadline: least: must be at least 0, got -1ns")
	_, err = NewChance(0, &Options{MaxKeys: -1})
	require.EqualError(t, err, "deadline: MaxKeys: must be at least 0, got -1")
}

func TestChanceOfAnUnknownKeyIsTheConstant(t *testing.T) {
	c := chance(t, 100*time.Millisecond, nil)
	require.False(t, c.Fair("a", 100*time.Millisecond-1))
	require.True(t, c.Fair("a", 100*time.Millisecond))
	for range 9 {
		c.Observe("a", time.Second)
	}
	require.True(t, c.Fair("a", 100*time.Millisecond), "nine are not enough")
	c.Observe("a", time.Millisecond)
	require.False(t, c.Fair("a", time.Second-1), "the slowest of ten")
	require.True(t, c.Fair("a", time.Second))
	require.True(t, c.Fair("b", 100*time.Millisecond), "of another key nothing is known")
}

// A caller that chooses its deadlines and what it asks for cannot make them look like the fault of the service.
func TestDeadlineShortOfWhatSomeRequestsTakeIsNotFair(t *testing.T) {
	for _, slow := range []float64{0.95, 0.5, 0.04} {
		c := chance(t, 100*time.Millisecond, nil)
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range 20_000 {
			latency := 20 * time.Millisecond
			if rng.Float64() < slow {
				latency = 300 * time.Millisecond
			}
			c.Observe("a", latency)
			if i > 2000 {
				require.False(t, c.Fair("a", 130*time.Millisecond), "after %d, %v slow", i, slow)
				require.True(t, c.Fair("a", 300*time.Millisecond))
			}
		}
	}
}

func TestChanceFollowsAServiceThatBecameFaster(t *testing.T) {
	c := chance(t, time.Hour, nil)
	for range 100 {
		c.Observe("a", time.Second)
	}
	n := 0
	for ; c.Needs("a") > 11*time.Millisecond; n++ {
		c.Observe("a", 10*time.Millisecond)
	}
	require.Less(t, n, 10_000)
	require.GreaterOrEqual(t, c.Needs("a"), 10*time.Millisecond)
}

// Callers with one deadline succeed before it, so it is always fair, however close to it they come.
func TestOneDeadlineForAllIsAlwaysFair(t *testing.T) {
	c := chance(t, time.Millisecond, nil)
	rng := rand.New(rand.NewPCG(3, 4))
	const limit = 200 * time.Millisecond
	for range 50_000 {
		if latency := time.Duration(rng.ExpFloat64() * float64(limit)); latency <= limit {
			c.Observe("a", latency)
		}
		require.True(t, c.Fair("a", limit))
	}
}

func TestChanceBoundsItsKeys(t *testing.T) {
	c := chance(t, time.Hour, &Options{MaxKeys: 3})
	long := strings.Repeat("x", 1<<16)
	for i := range 10 {
		for range 20 {
			c.Observe(fmt.Sprint(i), 1)
			c.Observe(long, 1)
		}
	}
	known := 0
	for i := range 10 {
		if c.Needs(fmt.Sprint(i)) < time.Hour {
			known++
		}
	}
	require.Equal(t, 3, known)
	require.Equal(t, time.Hour, c.Needs(long))
}

func TestConcurrentChances(t *testing.T) {
	c := chance(t, time.Hour, nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 5000 {
				c.Observe("a", time.Duration(1+i%100)*time.Millisecond)
				_ = c.Fair("a", time.Millisecond)
			}
		})
	}
	wg.Wait()
	require.InDelta(t, 100, c.Needs("a").Milliseconds(), 20)
}

func TestChanceAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	c := chance(t, time.Hour, nil)
	c.Observe("a", 1)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		c.Observe("a", time.Millisecond)
		_ = c.Fair("a", time.Second)
	}))
}

func BenchmarkChance(b *testing.B) {
	c, err := NewChance(time.Hour, nil)
	require.NoError(b, err)
	for range 20 {
		c.Observe("route", time.Second)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Observe("route", time.Millisecond)
		}
	})
}
