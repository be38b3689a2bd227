package virtual

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/bench/peers"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

var (
	jsonOut = flag.String("json-out", "", "play everything, and write the figures to this `FILE`")
	brief   = flag.Bool("brief", false, "with -json-out: play a little only")
)

// A figure is one policy's result, as examples/simulate writes it. What there is nothing to tell of is null.
type figure struct {
	Policy         string   `json:"policy"`
	Scenario       string   `json:"scenario"`
	Load           float64  `json:"load"` // as a multiple of the capacity
	Goodput        *float64 `json:"goodput"`
	First5s        *float64 `json:"first5s"`
	P99Ms          *float64 `json:"p99_ms"`
	WronglyRefused *float64 `json:"wrongly_refused"`
	ConvergedS     *float64 `json:"converged_s"`
	RecoveredS     *float64 `json:"recovered_s"`
}

// A play is a scenario with the load it goes to.
type play struct {
	sim.Scenario

	load float64
}

func plays() []play {
	return []play{
		{within(sim.Named("step", 2), half), 2}, {within(sim.Named("step", 5), half), 5}, {within(sim.Named("step", 10), half), 10},
		{within(sim.Named("pool", 2), half), 2}, {within(sim.Named("pool", 10), half), 10},
		{sim.Named("slow-dependency", 0), 0.5}, {within(sim.Named("pauses", 0), half), 0.6}, {within(sim.Named("steady", 0.9), half), 0.9},
	}
}

// half is how long a phase lasts that package sim lets go on for a minute or more: all has been said by then.
const half = 30 * time.Second

// within shortens the phases of s.
func within(s sim.Scenario, longest time.Duration) sim.Scenario {
	for i := range s.Phases {
		s.Phases[i].For = min(s.Phases[i].For, longest)
	}
	return s
}

// contenders are the names of everything that can be played.
func contenders() []string {
	names := []string{"none", "fixed:8", "spillway"}
	for _, p := range peers.All() {
		// The sensors of those with "stock" look at this machine, not at the simulated one; a throttle by failures is no shedder.
		if !strings.HasSuffix(p.Name, "-stock") && p.Name != "failsafe-throttler" {
			names = append(names, p.Name)
		}
	}
	return names
}

// run plays s behind the policy of the given name.
func run(t *testing.T, s sim.Scenario, name string) *sim.Result {
	t.Helper()
	var result *sim.Result
	synctest.Test(t, func(t *testing.T) {
		clock := follower()
		var err error
		result, err = sim.Run(s, 1, func(h *sim.Host) (*spillway.Gate, error) { return gate(name, h, clock) })
		require.NoError(t, err)
	})
	return result
}

func gate(name string, h *sim.Host, clock func(time.Time)) (*spillway.Gate, error) {
	var (
		policy spillway.Policy
		err    error
	)
	switch {
	case name == "none":
		return spillway.New(), nil
	case strings.HasPrefix(name, "fixed:"):
		var n int
		if n, err = strconv.Atoi(name[len("fixed:"):]); err == nil {
			policy, err = limiter.New(limiter.Concurrency{Limit: n})
		}
	case name == "spillway":
		policy, err = shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched()})
	default:
		var p peers.Peer
		if p, err = peers.Find(name); err == nil {
			policy, err = p.Policy(h.CPU(), clock)
		}
	}
	if err != nil {
		return nil, err
	}
	return spillway.New(policy), nil
}

// follower returns what makes the bubble's clock show the simulated time. Both count from the first call on.
func follower() func(time.Time) {
	var simulated, begin time.Time
	return func(now time.Time) {
		if simulated.IsZero() {
			simulated, begin = now, time.Now()
		}
		time.Sleep(now.Sub(simulated) - time.Since(begin))
	}
}

func newFigure(policy string, p play, r *sim.Result) figure {
	return figure{
		Policy: policy, Scenario: r.Scenario, Load: p.load,
		Goodput: known(r.Goodput), First5s: known(r.First5s), P99Ms: known(in(time.Millisecond, r.P99)), WronglyRefused: known(r.WronglyRefused),
		ConvergedS: known(in(time.Second, r.Converged)), RecoveredS: known(in(time.Second, r.Recovered)),
	}
}

// in returns a duration in units, or NaN if it has no value.
func in(unit, d time.Duration) float64 {
	if d == math.MaxInt64 {
		return math.NaN()
	}
	return float64(d) / float64(unit)
}

func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// TestFigures plays everything and writes the figures if it is told where to, and otherwise a little of everything.
func TestFigures(t *testing.T) {
	var figures struct {
		Results []figure `json:"results"`
	}
	all := plays()
	if *jsonOut == "" || *brief {
		all = []play{{within(sim.Named("step", 5), time.Second), 5}}
	}
	for _, p := range all {
		for _, name := range contenders() {
			f := newFigure(name, p, run(t, p.Scenario, name))
			figures.Results = append(figures.Results, f)
			t.Logf("%-16s %4g  %-18s goodput %s  first 5 s %s  p99 %s  wrongly refused %s", f.Scenario, f.Load, name,
				text(f.Goodput), text(f.First5s), text(f.P99Ms), text(f.WronglyRefused))
		}
	}
	data, err := json.Marshal(figures)
	require.NoError(t, err)
	if *jsonOut != "" {
		require.NoError(t, os.WriteFile(*jsonOut, append(data, '\n'), 0o600))
	}
}

// The peers' code is really asked, sees the simulated time and the simulated CPU: only then does it keep what it is known
// to keep, with room on both sides.
func TestPeersKeepWhatTheyAreKnownToKeep(t *testing.T) {
	step := within(sim.Named("step", 5), 4*time.Second)
	for _, c := range []struct {
		name        string
		least, most float64
	}{
		{"none", 0, 0.4},
		{"fixed:8", 0.9, 1.1},
		{"spillway", 0.8, 1.1},
		{"go-zero", 0.5, 1},
		{"aegis", 0.6, 1.1},
		{"failsafe", 0.4, 0.95},
		{"failsafe-throttler", 0, 0.4},
		{"gradient2", 0.7, 1},
		{"vegas", 0.85, 1.1},
	} {
		r := run(t, step, c.name)
		require.Greater(t, r.Goodput, c.least, c.name)
		require.Less(t, r.Goodput, c.most, c.name)
	}
}

// A pool that is used up while the CPU idles is nothing that a shedder by CPU can see, and a limit by latency can.
func TestPoolIsSeenByLatencyOnly(t *testing.T) {
	pool := within(sim.Named("pool", 5), 4*time.Second)
	require.Less(t, run(t, pool, "go-zero").Goodput, 0.3)
	require.Less(t, run(t, pool, "aegis").Goodput, 0.3)
	require.Greater(t, run(t, pool, "failsafe").Goodput, 0.8)
	require.Greater(t, run(t, pool, "vegas").Goodput, 0.8)
}

func TestFollowerShowsTheSimulatedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, simulated, clock := time.Now(), time.Unix(5, 0), follower()
		clock(simulated)
		require.Zero(t, time.Since(begin))
		clock(simulated.Add(3 * time.Second))
		require.Equal(t, 3*time.Second, time.Since(begin))
		clock(simulated.Add(time.Second)) // never back
		require.Equal(t, 3*time.Second, time.Since(begin))
	})
}

func text(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", *v)
}
