package sim_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
	"github.com/spillway-go/spillway/stats"
)

// learnt is how many seconds it takes until the shedder has learnt a service.
const learnt = 12.0

// A liar makes the sensors of a host lie.
type liar struct {
	name  string
	cpu   func(s stats.CPUSample, rng *rand.Rand) stats.CPUSample
	sched func(s stats.SchedSample, rng *rand.Rand) stats.SchedSample
	read  func() (float64, error) // a signal
	// said reports whether the shedder says that something is wrong. If it is nil, nobody can know: the lie is plausible.
	said func(shedder.Stats) bool
}

func cpuSaid(s shedder.Stats) bool    { return s.CPUErr != nil }
func schedSaid(s shedder.Stats) bool  { return s.SchedErr != nil }
func signalSaid(s shedder.Stats) bool { return s.SignalErr != nil }

// cpuSays lies about the usage in fresh samples.
func cpuSays(value func(*rand.Rand) float64) func(stats.CPUSample, *rand.Rand) stats.CPUSample {
	return func(s stats.CPUSample, rng *rand.Rand) stats.CPUSample {
		s.Usage = value(rng)
		s.Smoothed = s.Usage
		return s
	}
}

// waitSays lies about the waits in fresh samples.
func waitSays(value func(*rand.Rand) time.Duration) func(stats.SchedSample, *rand.Rand) stats.SchedSample {
	return func(s stats.SchedSample, rng *rand.Rand) stats.SchedSample {
		s.Value = value(rng)
		s.Median, s.Mean = s.Value, s.Value
		return s
	}
}

func always[T any](v T) func(*rand.Rand) T { return func(*rand.Rand) T { return v } }

// freeze goes on saying what it said first.
func freeze[T any]() func(T, *rand.Rand) T {
	var first *T
	return func(s T, _ *rand.Rand) T {
		if first == nil {
			first = &s
		}
		return *first
	}
}

func panics[T any](T, *rand.Rand) T { panic("nil map") }

func liars() []liar {
	return []liar{
		{name: "cpu high", cpu: cpuSays(always(1.0))},
		{name: "cpu low", cpu: cpuSays(always(0.0))},
		{name: "cpu frozen", cpu: freeze[stats.CPUSample](), said: cpuSaid},
		{name: "cpu jumping", cpu: cpuSays((*rand.Rand).Float64)},
		{name: "cpu NaN", cpu: cpuSays(always(math.NaN())), said: cpuSaid},
		{name: "cpu infinite", cpu: cpuSays(always(math.Inf(1))), said: cpuSaid},
		{name: "cpu negative", cpu: cpuSays(always(-1.0)), said: cpuSaid},
		{name: "cpu panicking", cpu: panics[stats.CPUSample], said: cpuSaid},
		{name: "wait high", sched: waitSays(always(time.Second)), said: schedSaid},
		{name: "wait low", sched: waitSays(always(time.Duration(0)))},
		{name: "wait frozen", sched: freeze[stats.SchedSample](), said: schedSaid},
		{name: "wait jumping", sched: waitSays(func(rng *rand.Rand) time.Duration { return time.Duration(rng.Int64N(1e9)) }), said: schedSaid},
		{name: "wait negative", sched: waitSays(always(time.Duration(math.MinInt64))), said: schedSaid},
		{name: "wait endless", sched: waitSays(always(time.Duration(math.MaxInt64))), said: schedSaid},
		{name: "wait panicking", sched: panics[stats.SchedSample], said: schedSaid},
		{name: "signal panicking", read: func() (float64, error) { panic("nil map") }, said: signalSaid},
		{name: "signal NaN", read: func() (float64, error) { return math.NaN(), nil }, said: signalSaid},
		{name: "signal failing", read: func() (float64, error) { return 1, errors.New("no file") }, said: signalSaid},
		{name: "wait 50 ms", sched: waitSays(always(50 * time.Millisecond))},
	}
}

type (
	lyingCPU struct {
		real  *stats.Sensor[stats.CPUSample]
		lie   func(stats.CPUSample) stats.CPUSample
		since *time.Time
	}
	lyingSched struct {
		real  *stats.Sensor[stats.SchedSample]
		lie   func(stats.SchedSample) stats.SchedSample
		since *time.Time
	}
)

func (l lyingCPU) Sample(now time.Time) stats.CPUSample {
	s := l.real.Sample(now)
	if l.lie == nil || now.Before(*l.since) {
		return s
	}
	return l.lie(s)
}

func (l lyingSched) Sample(now time.Time) stats.SchedSample {
	s := l.real.Sample(now)
	if l.lie == nil || now.Before(*l.since) {
		return s
	}
	return l.lie(s)
}

// gate is a shedder whose sensors lie from so many seconds on. It sets said to the seconds after which the shedder said so.
func (l liar) gate(seed uint64, from float64, said *float64) func(h *sim.Host) (*spillway.Gate, error) {
	return func(h *sim.Host) (*spillway.Gate, error) {
		rng := rand.New(rand.NewPCG(seed, 99))
		since := time.Unix(1_000_000_000, 0).Add(time.Duration(from * 1e9))
		cpu, sched := lyingCPU{real: h.CPU(), since: &since}, lyingSched{real: h.Sched(), since: &since}
		if l.cpu != nil {
			cpu.lie = func(s stats.CPUSample) stats.CPUSample { return l.cpu(s, rng) }
		}
		if l.sched != nil {
			sched.lie = func(s stats.SchedSample) stats.SchedSample { return l.sched(s, rng) }
		}
		o := shedder.Options{CPU: cpu, Sched: sched}
		if l.read != nil {
			o.Signals = []shedder.Signal{{Name: "mine", Threshold: 0.9, Read: func(now time.Time) (float64, error) {
				if now.Before(since) {
					return 0, nil
				}
				return l.read()
			}}}
		}
		shed, err := shedder.New(&o)
		if err != nil {
			return nil, err
		}
		h.Every(100*time.Millisecond, func(at float64) {
			if l.said != nil && math.IsNaN(*said) && at > from && l.said(shed.Stats()) {
				*said = at - from
			}
		})
		return spillway.New(shed), nil
	}
}

// healthy are services at 0.7 of what they can do.
func healthy() []sim.Scenario {
	const load = 0.7
	list := []sim.Scenario{sim.Named("steady", load), sim.Named("step-solid", load), sim.Named("step-quota", load), sim.Named("cpu-io", load), sim.Named("pool", load), sim.Named("lock", load)}
	for i := range list {
		list[i].Phases = []sim.Phase{{For: learnt * time.Second, Load: load}, {For: 30 * time.Second, Load: load, Measured: true}}
	}
	return list
}

// A sensor that is right is never doubted, however loaded the service is.
func TestHonestSensorsAreBelieved(t *testing.T) {
	for _, s := range sim.Library(5) {
		if s.Name == "blind" {
			continue // its sensors say that they fail
		}
		if length(s) >= time.Minute {
			s = within(s, 6)
		}
		play(t, s, 1, func(h *sim.Host) (*spillway.Gate, error) {
			shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched()})
			h.Every(100*time.Millisecond, func(at float64) {
				v := shed.Stats()
				require.NotErrorIs(t, v.CPUErr, shedder.ErrImplausible, "%s at %v s", s.Name, at)
				require.NotErrorIs(t, v.SchedErr, shedder.ErrImplausible, "%s at %v s", s.Name, at)
			})
			return spillway.New(shed), err
		})
	}
}

// At 0.7 of its capacity a service loses at most 1 % against a bare one, whatever one of its sensors says, and where it can be
// known, Stats say within about 3 s that something is wrong. That is as long as a sample is believed that is not renewed.
func TestLyingSensorsCostAHealthyServiceNothing(t *testing.T) {
	for _, s := range healthy() {
		costsNothing(t, s, learnt)
	}
}

// So it is with sensors that have lied from the first request on, before anything is learnt.
func TestSensorsThatLieFromTheBeginningCostNothing(t *testing.T) {
	for _, s := range []sim.Scenario{healthy()[0], healthy()[3]} {
		costsNothing(t, s, 0)
	}
}

func costsNothing(t *testing.T, s sim.Scenario, from float64) {
	bareR := play(t, s, 1, bare)
	for _, l := range liars() {
		t.Run(s.Name+"/"+l.name, func(t *testing.T) {
			said := math.NaN()
			r := play(t, s, 1, l.gate(1, from, &said))
			t.Logf("goodput %.4f of bare, %.4f refused, said so after %.1f s", r.Goodput/bareR.Goodput, r.Shed, said)
			require.GreaterOrEqual(t, r.Goodput, 0.99*bareR.Goodput)
			if l.said != nil {
				require.False(t, math.IsNaN(said), "it never said so")
				require.Less(t, said, 3.15)
			}
		})
	}
}
