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
		c.Observe("a", time.Second, None)
	}
	require.True(t, c.Fair("a", 100*time.Millisecond), "nine are not enough")
	c.Observe("a", time.Millisecond, None)
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
			c.Observe("a", latency, None)
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
		c.Observe("a", time.Second, None)
	}
	n := 0
	for ; c.Needs("a") > 11*time.Millisecond; n++ {
		c.Observe("a", 10*time.Millisecond, None)
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
			c.Observe("a", latency, None)
		}
		require.True(t, c.Fair("a", limit))
	}
}

// A crowd of requests that all have little time does not bring the budget down: those of them that finish are the fast
// ones.
func TestHurriedRequestsTeachAChanceNothing(t *testing.T) {
	c := chance(t, 100*time.Millisecond, nil)
	for range 10_000 {
		c.Observe("a", 20*time.Millisecond, generous*100*time.Millisecond-generous)
	}
	require.Equal(t, 100*time.Millisecond, c.Needs("a"), "nor before anything is known")
	require.True(t, c.Known("a"))
	require.False(t, c.Known("b"))
	for range 100 {
		c.Observe("a", 300*time.Millisecond, None)
	}
	for range 10_000 {
		c.Observe("a", 20*time.Millisecond, generous*300*time.Millisecond-generous)
	}
	require.Equal(t, 300*time.Millisecond, c.Needs("a"))
	for range 1000 {
		c.Observe("a", 20*time.Millisecond, generous*300*time.Millisecond)
	}
	require.Less(t, c.Needs("a"), 300*time.Millisecond)
}

// A service that becomes slower little by little, until all deadlines pass, is not excused: the budget stays below
// the deadlines that its clients have.
func TestChanceStaysBelowTheDeadlinesOfAll(t *testing.T) {
	c := chance(t, 100*time.Millisecond, nil)
	for latency := 10 * time.Millisecond; latency < time.Second; latency += time.Millisecond {
		c.Observe("a", latency, time.Second)
	}
	require.True(t, c.Fair("a", time.Second))
	require.Greater(t, c.Needs("a"), time.Second/3)
}

func TestChanceBoundsItsKeys(t *testing.T) {
	c := chance(t, time.Hour, &Options{MaxKeys: 3})
	long := strings.Repeat("x", 1<<16)
	for i := range 10 {
		for range 20 {
			c.Observe(fmt.Sprint(i), 1, None)
			c.Observe(long, 1, None)
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
				c.Observe("a", time.Duration(1+i%100)*time.Millisecond, None)
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
	c.Observe("a", 1, None)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		c.Observe("a", time.Millisecond, None)
		_ = c.Fair("a", time.Second)
	}))
}

func BenchmarkChance(b *testing.B) {
	c, err := NewChance(time.Hour, nil)
	require.NoError(b, err)
	for range 20 {
		c.Observe("route", time.Second, None)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Observe("route", time.Millisecond, None)
		}
	})
}
