package breaker_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

func (g *rig) callKey(key string, o spillway.Outcome) bool {
	c, err := g.admitKey(key)
	if err == nil {
		g.done(c, o)
	}
	return err == nil
}

func newKeyedRig(t testing.TB, o *breaker.KeyedOptions) (*rig, *breaker.Keyed) {
	r := newKeyed(t, o)
	return newRig(t, r), r
}

// stateOf returns the state of a key's breaker, or "none".
func (g *rig) stateOf(key string) string {
	m, ok := g.p.(*breaker.Keyed).Lookup(key)
	if !ok {
		return "none"
	}
	return string(m.(*breaker.Breaker).StatsAt(g.now).State)
}

func quick(o breaker.Options) func(string) (breaker.Member, error) {
	return func(string) (breaker.Member, error) { return breaker.New(&o) }
}

func TestKeysAreApart(t *testing.T) {
	g, r := newKeyedRig(t, &breaker.KeyedOptions{New: quick(breaker.Options{Consecutive: 3})})
	for range 3 {
		require.True(t, g.callKey("a", spillway.Failure))
		require.True(t, g.callKey("b", spillway.Success))
	}
	require.False(t, g.callKey("a", spillway.Success))
	require.True(t, g.callKey("b", spillway.Success))
	require.Equal(t, breaker.KeyedStats{Name: "breakers", Openings: map[string]int64{"consecutive failures": 1}, Keys: 2, Open: 1}, r.Stats())
	seen := map[string]breaker.State{}
	for key, m := range r.All() {
		seen[key] = m.(*breaker.Breaker).StatsAt(g.now).State
	}
	require.Equal(t, map[string]breaker.State{"a": breaker.Open, "b": breaker.Closed}, seen)
	for range r.All() {
		break
	}
}

// TestOnlyIdleKeysAreEvicted: room for two; one is open, the other has failed once.
func TestOnlyIdleKeysAreEvicted(t *testing.T) {
	g, r := newKeyedRig(t, &breaker.KeyedOptions{MaxKeys: 2, New: quick(breaker.Options{Consecutive: 3, OpenFor: time.Minute})})
	for range 3 {
		g.callKey("open", spillway.Failure)
	}
	g.callKey("failed", spillway.Failure)
	require.True(t, g.callKey("new", spillway.Success))
	require.Equal(t, "open closed none", g.stateOf("open")+" "+g.stateOf("failed")+" "+g.stateOf("new"))
	require.EqualValues(t, 1, r.Stats().Overflowed)
	g.now = g.now.Add(10 * time.Second)
	require.True(t, g.callKey("new", spillway.Success))
	require.Equal(t, "open none closed", g.stateOf("open")+" "+g.stateOf("failed")+" "+g.stateOf("new"))
	require.Equal(t, breaker.KeyedStats{Name: "breakers", Openings: map[string]int64{"consecutive failures": 1}, Keys: 2, Open: 1, Overflowed: 1, Evicted: 1}, r.Stats())
}

// TestInventedKeysChangeNothing: an attacker sends a million keys that fail, while a key is about to trip.
func TestInventedKeysChangeNothing(t *testing.T) {
	g, r := newKeyedRig(t, &breaker.KeyedOptions{MaxKeys: 100})
	for range 9 {
		g.callKey("victim", spillway.Failure)
	}
	for i := range 100_000 {
		g.now = g.now.Add(50 * time.Microsecond)
		g.callKey(fmt.Sprint(i), spillway.Failure)
		if i%1000 == 0 {
			require.LessOrEqual(t, r.Stats().Keys, int64(100))
		}
	}
	require.True(t, g.callKey("victim", spillway.Failure))
	require.Equal(t, "open", g.stateOf("victim"))
	require.LessOrEqual(t, r.Stats().Keys, int64(100))
	require.Greater(t, r.Stats().Overflowed, int64(90_000))
}

// TestDeadKeysAreEvictedInTheEnd: keys that failed for good and that nobody asks about do not fill the Keyed for ever.
func TestDeadKeysAreEvictedInTheEnd(t *testing.T) {
	g, r := newKeyedRig(t, &breaker.KeyedOptions{MaxKeys: 2, New: quick(breaker.Options{Consecutive: 1, MaxOpen: time.Minute})})
	g.callKey("a", spillway.Failure)
	g.callKey("b", spillway.Failure)
	g.now = g.now.Add(9 * time.Minute)
	g.callKey("c", spillway.Success)
	require.Equal(t, "none", g.stateOf("c"))
	g.now = g.now.Add(2 * time.Minute)
	g.callKey("c", spillway.Success)
	require.Equal(t, "closed", g.stateOf("c"))
	require.EqualValues(t, 0, r.Stats().Open)
}

// TestCallsUnderWayKeepTheirKey: a call that takes an hour ends where it began.
func TestCallsUnderWayKeepTheirKey(t *testing.T) {
	g, r := newKeyedRig(t, &breaker.KeyedOptions{MaxKeys: 1})
	c, err := g.admitKey("a")
	require.NoError(t, err)
	over, err := g.admitKey("b")
	require.NoError(t, err)
	g.now = g.now.Add(time.Hour)
	require.True(t, g.callKey("b", spillway.Success))
	require.Equal(t, "closed none", g.stateOf("a")+" "+g.stateOf("b"))
	g.done(c, spillway.Failure)
	a, _ := r.Lookup("a")
	require.EqualValues(t, 1, a.(*breaker.Breaker).StatsAt(g.now).Failures)
	g.now = g.now.Add(time.Hour)
	g.callKey("b", spillway.Success)
	require.Equal(t, "none closed", g.stateOf("a")+" "+g.stateOf("b"))
	g.done(over, spillway.Failure) // it was let through by the shared policy, though b now has its own
	require.EqualValues(t, 0, shared(r).StatsAt(g.now).InFlight)
	require.EqualValues(t, 1, shared(r).StatsAt(g.now).Failures)
}

func TestAtMostAShareOfKeysIsOpen(t *testing.T) {
	g, r := newKeyedRig(t, &breaker.KeyedOptions{
		MaxOpen: 0.1, New: quick(breaker.Options{Consecutive: 2, Jitter: off, Probes: 1}),
	})
	for range 2 {
		for i := range 30 {
			g.callKey(fmt.Sprint(i), spillway.Success)
		}
	}
	for range 5 {
		for i := range 30 {
			g.callKey(fmt.Sprint(i), spillway.Failure)
		}
	}
	open := 0
	vetoed := int64(0)
	for _, m := range r.All() {
		s := m.(*breaker.Breaker).StatsAt(g.now)
		if s.State == breaker.Open {
			open++
		}
		vetoed += s.Vetoed
	}
	require.Equal(t, 3, open)
	require.EqualValues(t, 3, r.Stats().Open)
	require.Positive(t, vetoed)
	g.now = g.now.Add(5 * time.Second)
	require.True(t, g.callKey("0", spillway.Success))
	require.Equal(t, "closed", g.stateOf("0"))
	require.EqualValues(t, 2, r.Stats().Open)
	g.callKey("29", spillway.Failure)
	require.Equal(t, "open", g.stateOf("29"), "there is a place again")
	for _, m := range r.All() {
		_ = m.(*breaker.Breaker).SetState(g.now, breaker.Closed, 0)
	}
	require.EqualValues(t, 0, r.Stats().Open)
}

func TestOneKeyMayAlwaysBeOpen(t *testing.T) {
	g, _ := newKeyedRig(t, &breaker.KeyedOptions{MaxOpen: 0.1, New: quick(breaker.Options{Consecutive: 1})})
	g.callKey("a", spillway.Failure)
	require.Equal(t, "open", g.stateOf("a"))
}

func TestNewIsCalledOncePerKey(t *testing.T) {
	var built atomic.Int64
	var here sync.WaitGroup
	here.Add(50)
	_, r := newKeyedRig(t, &breaker.KeyedOptions{New: func(key string) (breaker.Member, error) {
		built.Add(1)
		if key != "" {
			here.Wait() // all others have come too
		}
		return breaker.New(nil)
	}})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			g := newRig(t, r)
			here.Done()
			g.callKey("a", spillway.Success)
		})
	}
	wg.Wait()
	require.EqualValues(t, 2, built.Load(), "one shared, one of its own")
	a, _ := r.Lookup("a")
	require.EqualValues(t, 50, a.(*breaker.Breaker).StatsAt(t0).Successes)
}

func TestNewMayAskTheKeyed(t *testing.T) {
	var r *breaker.Keyed
	r = newKeyed(t, &breaker.KeyedOptions{New: func(key string) (breaker.Member, error) {
		if key == "a" {
			newRig(t, r).callKey("b", spillway.Success)
		}
		return breaker.New(nil)
	}})
	newRig(t, r).callKey("a", spillway.Success)
	require.EqualValues(t, 2, r.Stats().Keys)
}

func TestNewMayFail(t *testing.T) {
	fail := errors.New("no such host")
	g, r := newKeyedRig(t, &breaker.KeyedOptions{New: func(key string) (breaker.Member, error) {
		switch key {
		case "bad":
			return nil, fail
		case "worse":
			panic(fail)
		}
		return breaker.NewThrottle(nil)
	}})
	require.True(t, g.callKey("bad", spillway.Success))
	require.PanicsWithValue(t, fail, func() { g.callKey("worse", spillway.Success) })
	require.True(t, g.callKey("worse", spillway.Success))
	require.True(t, g.callKey("good", spillway.Success))
	require.Equal(t, breaker.KeyedStats{Name: "breakers", Keys: 3, Overflowed: 2, Failed: 2}, r.Stats())
	_, err := breaker.NewKeyed(&breaker.KeyedOptions{New: func(string) (breaker.Member, error) { return nil, fail }})
	require.ErrorIs(t, err, fail)
	_, err = breaker.NewKeyed(&breaker.KeyedOptions{New: func(string) (breaker.Member, error) { return nil, nil }})
	require.ErrorContains(t, err, "returned nil")
	_, err = breaker.NewKeyed(&breaker.KeyedOptions{MaxKeys: -1})
	require.ErrorContains(t, err, "MaxKeys must be in 1..16777216, got -1")
	_, err = breaker.NewKeyed(&breaker.KeyedOptions{MaxOpen: 1.5})
	require.ErrorContains(t, err, "MaxOpen must be in (0, 1] or 0, got 1.5")
}

// TestIdleThrottlesAreEvicted shows the same for the other kind.
func TestIdleThrottlesAreEvicted(t *testing.T) {
	g, r := newKeyedRig(t, &breaker.KeyedOptions{MaxKeys: 1, New: func(string) (breaker.Member, error) {
		return breaker.NewThrottle(nil)
	}})
	g.callKey("a", spillway.Failure)
	g.now = g.now.Add(time.Minute)
	g.callKey("b", spillway.Success)
	_, ok := r.Lookup("a")
	require.True(t, ok)
	g.now = g.now.Add(2 * time.Minute)
	g.callKey("b", spillway.Success)
	_, ok = r.Lookup("a")
	require.False(t, ok)
}
