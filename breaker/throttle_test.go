package breaker_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/internal/race"
)

// TestRecoveryDoesNotDependOnTheRate: dead for ten minutes, then well.
func TestRecoveryDoesNotDependOnTheRate(t *testing.T) {
	const dead = 10 * time.Minute
	for _, rate := range []int{5, 200, 1000, 5000} {
		if race.Enabled && rate > 200 {
			continue // millions of calls on one goroutine: nothing to race, and ten times the time
		}
		for name, o := range map[string]breaker.ThrottleOptions{
			"defaults": {}, "wide": {MaxRefusal: 1},
		} {
			t.Run(fmt.Sprint(rate, name), func(t *testing.T) {
				t.Parallel()
				o.Seed = 1
				th := newThrottle(t, &o)
				s := newSim(t, th, upDown(0, dead, 100*time.Millisecond, spillway.Failure))
				s.run(dead, rate)
				sent := s.sent
				back := recovered(s.run(dead+30*time.Second, rate))
				t.Logf("%d of %d calls reached the dead dependency, back after %d s", sent, int(dead.Seconds())*rate, back)
				require.LessOrEqual(t, back, 10)
				require.Less(t, float64(sent), 0.06*dead.Seconds()*float64(rate)+dead.Seconds()+50)
			})
		}
	}
}

// TestThrottleRefusesNothingAtTheStart: thousands of calls come before the first is answered.
func TestThrottleRefusesNothingAtTheStart(t *testing.T) {
	s := newSim(t, newThrottle(t, nil), func(time.Duration) (time.Duration, spillway.Outcome) {
		return 500 * time.Millisecond, spillway.Success
	})
	require.Zero(t, recovered(s.run(10*time.Second, 5000)))
	require.Equal(t, s.asked, s.sent)
}

// TestThrottleSeesCallsThatHang: none ever returns.
func TestThrottleSeesCallsThatHang(t *testing.T) {
	s := newSim(t, newThrottle(t, &breaker.ThrottleOptions{Seed: 1}), func(time.Duration) (time.Duration, spillway.Outcome) {
		return time.Hour, spillway.Dropped
	})
	s.run(2*time.Second, 1000)
	require.Less(t, s.run(10*time.Second, 1000)[2], 0.1)
}

// bare is the formula of the book with nothing added.
func bare(k float64) *breaker.ThrottleOptions {
	return &breaker.ThrottleOptions{K: k, MinRequests: 1, MaxRefusal: 1, ProbeEvery: off, RecoverAfter: off, Seed: 1}
}

func TestThrottleOdds(t *testing.T) {
	for _, tc := range []struct {
		requests, accepts int
		k, odds           float64
	}{
		{1000, 1000, 2, 0},
		{1000, 500, 2, 0},
		{1000, 400, 2, 0.1998},
		{1000, 0, 2, 0.9990},
		{1000, 900, 1.1, 0.00999},
		{100, 50, 1 / 0.9, 0.44},
		{0, 0, 2, 0},
	} {
		th := newThrottle(t, bare(1e6)) // refuses nothing
		g := newRig(t, th)
		// The failures come last: while there are more successes, nothing is refused.
		for range tc.accepts {
			g.call(spillway.Success)
		}
		require.NoError(t, th.Tune(breaker.ThrottleOptions{K: 1e6, MinRequests: math.MaxInt, MaxRefusal: 1}))
		for range tc.requests - tc.accepts {
			g.call(spillway.Failure)
		}
		require.NoError(t, th.Tune(*bare(tc.k)))
		s := th.StatsAt(g.now)
		require.EqualValues(t, tc.requests, s.Requests)
		require.EqualValues(t, tc.accepts, s.Accepts)
		require.InDelta(t, tc.odds, s.Odds, 1e-4)
	}
}

func TestThrottleRefusesByTheOdds(t *testing.T) {
	th := newThrottle(t, bare(1e6)) // refuses nothing
	g := newRig(t, th)
	for range 40_000 {
		g.run("S")
	}
	for range 60_000 {
		g.run("F")
	}
	require.NoError(t, th.Tune(*bare(2)))
	for range 1000 { // so few that the odds stay where they are, at 0.2
		g.call(spillway.Ignored)
	}
	require.InDelta(t, 200, th.StatsAt(g.now).Refused, 40)
}

func TestThrottleNeedsAMinimum(t *testing.T) {
	o := bare(2)
	o.MinRequests = 20
	g := newRig(t, newThrottle(t, o))
	g.run("F*20")
	admitted := 0
	for range 1000 {
		if g.call(spillway.Failure) {
			admitted++
		}
	}
	require.Less(t, admitted, 30)
	g.now = g.now.Add(2 * time.Minute)
	g.run("F*20")
}

func TestThrottleEvenIsEnough(t *testing.T) {
	g := newRig(t, newThrottle(t, bare(2)))
	for range 100 {
		g.run("S F")
	}
	require.Zero(t, g.p.(*breaker.Throttle).StatsAt(g.now).Odds)
}

// TestThrottleTakesBack shows that requests which said nothing leave no trace, however late they end.
func TestThrottleTakesBack(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Second, 10 * time.Second, time.Minute, time.Hour} {
		th := newThrottle(t, nil)
		g := newRig(t, th)
		for i := range 100 {
			g.run(">a >b")
			g.now = g.now.Add(pause)
			g.run("a:I b:R")
			s := th.StatsAt(g.now)
			require.Zero(t, s.Requests, "%v, %d", pause, i)
			require.Zero(t, s.InFlight)
		}
	}
}

func TestThrottleRecoversOnceForARow(t *testing.T) {
	th := newThrottle(t, &breaker.ThrottleOptions{Seed: 1, RecoverAfter: 3})
	g := newRig(t, th)
	for range 100 {
		g.call(spillway.Failure)
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		c, err := g.admit()
		for err != nil {
			c, err = g.admit()
		}
		g.held[name] = c
	}
	g.run("a:S b:S c:F")
	require.Zero(t, th.StatsAt(g.now).Recoveries)
	require.Greater(t, th.StatsAt(g.now).Odds, 0.8)
	g.run("d:S e:S +1s")
	require.Zero(t, th.StatsAt(g.now).Recoveries)
	for th.StatsAt(g.now).Recoveries == 0 {
		g.call(spillway.Success)
	}
	s := th.StatsAt(g.now)
	require.Zero(t, s.Requests)
	require.Zero(t, s.Odds)
	g.run("S*1000")
}

func TestThrottleSaysThatItThrottles(t *testing.T) {
	g := newRig(t, newThrottle(t, &breaker.ThrottleOptions{Seed: 1}))
	for {
		if _, err := g.admit(); err != nil {
			require.Equal(t, &spillway.Rejection{Policy: "throttle", Reason: "throttled"}, err)
			return
		}
		g.now = g.now.Add(10 * time.Millisecond)
	}
}

func TestThrottleOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]breaker.ThrottleOptions{
		"K must be at least 1 and finite, got 0.5":                         {K: 0.5},
		"K must be at least 1 and finite, got NaN":                         {K: math.NaN()},
		"K must be at least 1 and finite, got +Inf":                        {K: math.Inf(1)},
		"Window must be a positive multiple of Buckets (40) nanoseconds":   {Window: -time.Second},
		"Buckets must be in 1..1000, got -1":                               {Buckets: -1},
		"MinRequests must be at least 1, got -1":                           {MinRequests: -1},
		"MaxRefusal must be in (0, 1], got 2":                              {MaxRefusal: 2},
		"ProbeEvery must be positive and at most a year, or Off, got -2ns": {ProbeEvery: -2},
		"RecoverAfter must be at least 1 or Off, got -2":                   {RecoverAfter: -2},
	} {
		_, err := breaker.NewThrottle(&o)
		require.ErrorContains(t, err, "breaker: Throttle: "+want)
		if o.Window == 0 && o.Buckets == 0 {
			require.ErrorContains(t, newThrottle(t, nil).Tune(o), want)
		}
	}
	th := newThrottle(t, &breaker.ThrottleOptions{Seed: 1})
	for want, o := range map[string]breaker.ThrottleOptions{
		"Window cannot change from 2m0s, got 1m0s": {Window: time.Minute},
		"Buckets cannot change from 40, got 10":    {Buckets: 10},
		"Seed cannot change from 1, got 2":         {Seed: 2},
	} {
		require.ErrorContains(t, th.Tune(o), want)
	}
	require.NoError(t, th.Tune(breaker.ThrottleOptions{}))
}
