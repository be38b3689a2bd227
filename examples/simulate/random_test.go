package main

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/sim"
)

var (
	randomCases = flag.Int("random", 4, "services of each kind that TestRandomServices plays")
	randomKinds = flag.String("random.kinds", "slow,visits,slows,ramps,alike,jumps,pool,cold,connects,stalls,cpu,edges,boxes", "their kinds, separated by commas; \"minutes\", \"dbslows\", \"behind\", \"busyslows\", \"flaps\" and \"appboxes\" are more")
)

// A draw is a service of random figures.
type draw struct {
	name     string
	scenario sim.Scenario
	best     float64 // the goodput that is possible; 0 if it is that of the bare server
	swept    []int   // the goodput that is possible is that of the best of these fixed limits
}

// logUniform returns a number between low and high whose logarithm is uniform.
func logUniform(rng *rand.Rand, low, high float64) float64 {
	return low * math.Pow(high/low, rng.Float64())
}

// randomDist returns a distribution of one of five shapes with the given mean.
func randomDist(rng *rand.Rand, mean time.Duration) (sim.Dist, string) {
	switch rng.IntN(5) {
	case 0:
		return sim.Dist{Fixed: mean}, "fixed"
	case 1:
		return sim.Dist{Exp: mean}, "exp"
	case 2:
		return sim.Dist{Fixed: mean / 2, Exp: mean / 2}, "half"
	case 3:
		return sim.Dist{LogNormal: mean, Sigma: 1}, "lognormal"
	default: // one in ten takes eleven times as long as the others
		return sim.Dist{Fixed: mean / 2, Dear: 5 * mean, DearShare: 0.1}, "bimodal"
	}
}

func ofSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

var randomServices = map[string]func(rng *rand.Rand) draw{
	// Calls that take long from the start, while the CPU is idle.
	"slow": func(rng *rand.Rand) draw {
		mean := ofSeconds(logUniform(rng, 0.1, 3))
		wait, shape := randomDist(rng, mean)
		rate := math.Round(logUniform(rng, 5, 500))
		return draw{
			name:     fmt.Sprintf("%.0f/s %v %s", rate, mean.Round(ms), shape),
			scenario: slowCalls("slow", wait, max(10*mean, sec), 2*rate)(0.5),
		}
	},
	// Slow calls whose load comes and goes from the start. At most half of the CPU is in use, so no queue forms.
	"visits": func(rng *rand.Rand) draw {
		mean := ofSeconds(logUniform(rng, 0.05, 3))
		wait, shape := randomDist(rng, mean)
		rate := math.Round(logUniform(rng, 5, 300))
		scenario := slowCalls("visits", wait, max(10*mean, sec), 2*rate)(0.5)
		if rng.IntN(2) == 0 { // the CPU answers 400 per second, and is half in use
			rate, scenario = 200, slowCalls("visits", wait, max(10*mean, sec), 0)(0.5)
		}
		scenario.Phases = nil
		name := fmt.Sprintf("%.0f/s %v %s:", rate, mean.Round(ms), shape)
		for range 8 {
			lasts, load := ofSeconds(logUniform(rng, 1, 10)), []float64{0, 0.05, 0.3, 0.5}[rng.IntN(4)]
			scenario.Phases = append(scenario.Phases, sim.Phase{For: lasts, Load: load, Measured: true})
			name += fmt.Sprintf(" %g for %.1fs", load, lasts.Seconds())
		}
		return draw{name: name, scenario: scenario}
	},
	// A dependency that takes longer for 20 s.
	"slows": func(rng *rand.Rand) draw {
		mean := ofSeconds(logUniform(rng, 0.01, 0.5))
		wait, shape := randomDist(rng, mean)
		return randomSlows(rng, mean, wait, shape)
	},
	// The same, but it slows evenly within one to ten seconds.
	"ramps": func(rng *rand.Rand) draw {
		mean := ofSeconds(logUniform(rng, 0.01, 0.1))
		wait, shape := randomDist(rng, mean)
		if rng.IntN(2) == 0 {
			wait, shape = sim.Dist{Fixed: mean}, "fixed"
		}
		d := randomSlows(rng, mean, wait, shape)
		within := ofSeconds(logUniform(rng, 1, 10))
		slower, faster := d.scenario.Events[0], d.scenario.Events[1]
		d.scenario.Events = nil
		const steps = 50
		for i := range time.Duration(steps) {
			d.scenario.Events = append(d.scenario.Events, sim.Event{
				At: slower.At + i*within/steps, Stretch: 1 + (slower.Stretch-1)*float64(i+1)/steps,
			})
		}
		d.scenario.Events = append(d.scenario.Events, faster)
		d.name += fmt.Sprintf(" within %.1fs", within.Seconds())
		return d
	},
	// Like "slows" with calls that all take at least half as long as the mean, so their answers come in order.
	"alike": func(rng *rand.Rand) draw {
		mean := ofSeconds(logUniform(rng, 0.01, 0.5))
		if rng.IntN(2) == 0 {
			return randomSlows(rng, mean, sim.Dist{Fixed: mean / 2, Exp: mean / 2}, "half")
		}
		return randomSlows(rng, mean, sim.Dist{Fixed: mean}, "fixed")
	},
	// A dependency that takes longer than Far, so that it counts as down until late answers come. Two of six have calls of one length.
	"jumps": func(rng *rand.Rand) draw {
		mean := ofSeconds(logUniform(rng, 0.005, 0.1))
		wait, shape := randomDist(rng, mean)
		if sigma := []float64{0, 0, 0.1, 0.3, 1, 1}[rng.IntN(6)]; sigma < 1 {
			wait, shape = sim.Dist{LogNormal: mean, Sigma: sigma}, fmt.Sprint("lognormal ", sigma)
		}
		return randomJump(rng, mean, wait, shape, 16, 150)
	},
	"pool": func(rng *rand.Rand) draw { return randomPool(rng, []float64{0.9, 1.1, 1.5, 2, 4, 8}, false) },
	"cold": func(rng *rand.Rand) draw { return randomPool(rng, []float64{1.1, 1.5, 2, 4, 8}, true) },
	// A cold start whose database needs a moment for its first connections, with a CPU quota of which refusals take up to half.
	"connects": func(rng *rand.Rand) draw {
		load, stall := []float64{1.2, 1.5, 2, 3, 5}[rng.IntN(5)], time.Duration(rng.IntN(500))*ms
		scenario := cold("connects", mix)(load)
		m := &scenario.Machine
		m.Cores, m.Quota = 1+rng.IntN(2), logUniform(rng, 0.3, 0.9)
		m.Parse = ofSeconds(min(logUniform(rng, 20e-6, 200e-6), m.Quota/2/(700*load)))
		scenario.Events = []sim.Event{{Stage: "db", Stall: stall}}
		name := fmt.Sprintf("%d cores x %.2f, %v each, %v @%g", m.Cores, m.Quota, m.Parse.Round(time.Microsecond), stall, load)
		return draw{name: name, scenario: scenario, swept: []int{4, 8, 16, 32, 64}}
	},
	// A pool whose database stops for a while.
	"stalls": func(rng *rand.Rand) draw {
		stall := ofSeconds(logUniform(rng, 0.2, 5))
		return randomFault(rng, fmt.Sprint("stall ", stall.Round(ms)), []float64{0.5, 0.8, 0.95, 1.2, 2, 5}, sim.Event{At: 20 * sec, Stage: "db", Stall: stall})
	},
	// A pool whose database is slower for a while.
	"dbslows": func(rng *rand.Rand) draw {
		lasts, factor := ofSeconds(logUniform(rng, 0.5, 15)), logUniform(rng, 2, 20)
		return randomFault(rng, fmt.Sprintf("x %.1f for %v", factor, lasts.Round(ms)), []float64{0.5, 0.8, 1.2, 2, 5},
			sim.Event{At: 18 * sec, Stage: "db", Stretch: factor}, sim.Event{At: 18*sec + lasts, Stage: "db", Stretch: 1})
	},
	// A full pool behind another dependency, which is slower for a while.
	"behind": func(rng *rand.Rand) draw {
		wait, lasts, factor := ofSeconds(logUniform(rng, 0.005, 0.1)), ofSeconds(logUniform(rng, 0.5, 20)), logUniform(rng, 2, 20)
		fault := fmt.Sprintf("behind %v x %.1f for %v", wait.Round(ms), factor, lasts.Round(ms))
		d := randomFault(rng, fault, []float64{1.2, 2, 5},
			sim.Event{At: 18 * sec, Stage: "stock", Stretch: factor}, sim.Event{At: 18*sec + lasts, Stage: "stock", Stretch: 1})
		c := &d.scenario.Classes[0]
		c.Stages = slices.Insert(c.Stages, 1, sim.Stage{Name: "stock", Wait: sim.Dist{Exp: wait}})
		d.swept = append(d.swept, 512)
		return d
	},
	// A pool with a load that goes on and off.
	"flaps": func(rng *rand.Rand) draw {
		mean := ofSeconds(logUniform(rng, 0.005, 0.3))
		hold, shape := randomDist(rng, mean)
		slots := int(logUniform(rng, 4, 64))
		high, low := logUniform(rng, 0.8, 3), 0.3*rng.Float64()
		on, off := ofSeconds(logUniform(rng, 0.3, 3)), ofSeconds(logUniform(rng, 0.3, 3))
		scenario := withClient(max(sec/2, 20*mean), max(2*sec, 40*mean), pool("pool", slots, 4, hold))(0.5)
		scenario.Phases = []sim.Phase{{For: 10 * sec, Load: 0.5}}
		for t := time.Duration(0); t < 40*sec; t += on + off {
			scenario.Phases = append(scenario.Phases, sim.Phase{For: on, Load: high, Measured: true}, sim.Phase{For: off, Load: low, Measured: true})
		}
		name := fmt.Sprintf("%d x %v %s, %.2f for %v, %.2f for %v", slots, mean.Round(ms), shape, high, on.Round(ms), low, off.Round(ms))
		return draw{name: name, scenario: scenario, swept: []int{2, 4, 8, 16, 32, 64, 128, 256, 512}}
	},
	// A pool near its capacity for ten minutes, with clients that wait for four mean latencies.
	"minutes": func(rng *rand.Rand) draw {
		mean := ofSeconds(logUniform(rng, 0.02, 0.4))
		hold, shape := randomDist(rng, mean)
		slots, load := int(logUniform(rng, 5, 40)), []float64{0.9, 0.95, 1.05, 1.1, 1.2, 1.5}[rng.IntN(6)]
		scenario := lasting(withClient(4*mean, 8*mean, pool("pool", slots, 4, hold))(load), 15*sec, 600*sec, 15*sec)
		name := fmt.Sprintf("%d x %v %s @%g", slots, mean.Round(ms), shape, load)
		return draw{name: name, scenario: scenario, best: math.Floor(min(load, 1))}
	},
	// A dependency that takes longer for 20 s, while much of the CPU is in use.
	"busyslows": func(rng *rand.Rand) draw {
		mean, work := logUniform(rng, 0.005, 0.2), logUniform(rng, 0.0005, 0.02)
		wait, shape := randomDist(rng, ofSeconds(mean))
		cpu, other := randomDist(rng, ofSeconds(work))
		cores, load, factor := 1+rng.IntN(8), []float64{0.6, 0.75, 0.85, 0.92}[rng.IntN(4)], logUniform(rng, 2, 40)
		scenario := step(lib("step"))(load)
		scenario.Machine.Cores, scenario.Capacity = cores, 0
		scenario.Classes[0].Stages = []sim.Stage{{CPU: cpu, Wait: wait}}
		scenario.Phases = three(load, load)
		useful := max(sec, ofSeconds(8*factor*mean))
		scenario.Client = sim.Client{Useful: useful, Deadline: useful * 3 / 2}
		scenario.Events = []sim.Event{{At: 15 * sec, Stretch: factor}, {At: 35 * sec, Stretch: 1}}
		name := fmt.Sprintf("%d cores %v %s + %v %s x %.1f @%g", cores, ofSeconds(work).Round(100*time.Microsecond), other, ofSeconds(mean).Round(ms), shape, factor, load)
		return draw{name: name, scenario: scenario}
	},
	// Work of the CPU, with a wait beside it.
	"cpu": func(rng *rand.Rand) draw {
		return randomWork(rng, 0.2, []float64{0.9, 1.2, 2, 5}, 20, 10, step(lib("step")))
	},
	// The same near the capacity, half of them from a cold start.
	"edges": func(rng *rand.Rand) draw {
		of := step(lib("step"))
		if rng.IntN(2) == 0 {
			of = cold("cold", lib("step"))
		}
		return randomWork(rng, 0.05, []float64{0.95, 1.02, 1.05, 1.1, 1.2}, 15, 5, of)
	},
	// A pool behind work of the CPU that may not yield, under a quota that is the bottleneck or close to it.
	"appboxes": func(rng *rand.Rand) draw {
		mean := ofSeconds(logUniform(rng, 0.005, 0.2))
		hold, shape := randomDist(rng, mean)
		slots, load := int(logUniform(rng, 2, 50)), []float64{0.9, 1.05, 1.2, 2, 5}[rng.IntN(5)]
		of := withClient(max(sec/2, 20*mean), max(2*sec, 40*mean), pool("pool", slots, 4, hold))
		name := ""
		if rng.IntN(2) == 0 {
			of, name = cold("cold", of), "cold "
		}
		scenario := of(load)
		rate := float64(slots) / mean.Seconds()
		cores := 1 + rng.IntN(4)
		share := []float64{0.3, 0.6, 0.9, 1.3}[rng.IntN(4)] // of the CPU at the capacity of the pool
		quota := logUniform(rng, 0.3, 1) * float64(cores)
		cpu := share * quota / rate
		work, kind := randomDist(rng, ofSeconds(cpu))
		m := &scenario.Machine
		m.Cores, m.Quota = cores, quota
		m.Parse = ofSeconds(min(25e-6, cpu/5))
		scenario.Classes[0].Stages[0] = sim.Stage{CPU: work}
		scenario.Capacity = 0
		if rng.IntN(2) == 0 {
			scenario.Classes[0].Slice = sec
			name += "solid "
		}
		name += fmt.Sprintf("%d x %v %s, %d cores x %.2f, %v %s = %.1f @%g", slots, mean.Round(ms), shape, cores, quota, ofSeconds(cpu).Round(10*time.Microsecond), kind, share, load)
		return draw{name: name, scenario: scenario, swept: []int{1, 2, 4, 8, 16, 32, 64, 128, 256}}
	},
	// Work of the CPU under a quota in two of three cases, half of which does not yield, and half from a cold start.
	"boxes": func(rng *rand.Rand) draw {
		of := step(lib("step"))
		if rng.IntN(2) == 0 {
			of = cold("cold", lib("step"))
		}
		d := randomWork(rng, 0.1, []float64{0.9, 1.02, 1.05, 1.1, 1.2, 2, 5}, 20, 10, of)
		m := &d.scenario.Machine
		m.Cores = 1 + rng.IntN(4)
		d.name = fmt.Sprintf("%d of %s", m.Cores, d.name)
		if rng.IntN(3) > 0 {
			m.Quota = logUniform(rng, 0.2, 1) * float64(m.Cores)
			d.name += fmt.Sprintf(" quota %.2f", m.Quota)
		}
		if rng.IntN(2) == 0 {
			d.scenario.Classes[0].Slice = sec
			d.name += " solid"
		}
		d.best, d.swept = 0, []int{1, 2, 4, 8, 16, 32, 64, 128, 256}
		return d
	},
}

func randomSlows(rng *rand.Rand, mean time.Duration, wait sim.Dist, shape string) draw {
	return randomJump(rng, mean, wait, shape, 2, 30)
}

func randomJump(rng *rand.Rand, mean time.Duration, wait sim.Dist, shape string, least, most float64) draw {
	rate, factor := math.Round(logUniform(rng, 10, 1500)), logUniform(rng, least, most)
	scenario := slows("slows", rate, 4, wait, factor)
	useful := max(sec, time.Duration(10*factor*float64(mean)))
	scenario.Client = sim.Client{Useful: useful, Deadline: useful * 3 / 2}
	return draw{name: fmt.Sprintf("%.0f/s %v x %.1f %s", rate, mean.Round(ms), factor, shape), scenario: scenario}
}

func randomPool(rng *rand.Rand, loads []float64, fromCold bool) draw {
	mean := ofSeconds(logUniform(rng, 0.005, 0.5))
	hold, shape := randomDist(rng, mean)
	slots, load := int(logUniform(rng, 2, 100)), loads[rng.IntN(len(loads))]
	of := withClient(max(sec/2, 20*mean), max(2*sec, 40*mean), pool("pool", slots, 4, hold))
	if fromCold {
		of = cold("cold", of)
	}
	return draw{name: fmt.Sprintf("%d x %v %s @%g", slots, mean.Round(ms), shape, load), scenario: of(load), best: math.Floor(min(load, 1))}
}

// randomWork draws work of 1 to 50 ms of CPU, and a wait of 1 ms to most seconds. An answer is useful for works times the one plus waits
// times the other, in the mean.
func randomWork(rng *rand.Rand, most float64, loads []float64, works, waits float64, of func(float64) sim.Scenario) draw {
	work, wait := logUniform(rng, 0.001, 0.05), logUniform(rng, 0.001, most)
	cpu, shape := randomDist(rng, ofSeconds(work))
	idle, other := randomDist(rng, ofSeconds(wait))
	cores, load := 1+rng.IntN(8), loads[rng.IntN(len(loads))]
	scenario := of(load)
	scenario.Machine.Cores, scenario.Capacity = cores, 0
	scenario.Classes[0].Stages = []sim.Stage{{CPU: cpu, Wait: idle}}
	useful := max(250*ms, ofSeconds(works*work+waits*wait))
	scenario.Client = sim.Client{Useful: useful, Deadline: 4 * useful}
	name := fmt.Sprintf("%d cores %v %s + %v %s @%g", cores, ofSeconds(work).Round(100*time.Microsecond), shape, ofSeconds(wait).Round(ms), other, load)
	return draw{name: name, scenario: scenario, best: math.Floor(min(load, 1))}
}

func randomFault(rng *rand.Rand, fault string, loads []float64, events ...sim.Event) draw {
	d := randomPool(rng, loads, false)
	load := d.scenario.Phases[1].Load
	d.scenario.Phases, d.scenario.Events = three(min(load, 0.7), load), events
	d.name, d.best, d.swept = d.name+" "+fault, 0, []int{2, 4, 8, 16, 32, 64, 128, 256}
	return d
}

// bestFixed returns the goodput of the best of the given limits.
func bestFixed(scenario sim.Scenario, seed uint64, limits []int) (best float64, err error) {
	for _, limit := range limits {
		got, err := sim.Run(scenario, seed, fixed(limit))
		if err != nil {
			return 0, err
		}
		best = max(best, got.Goodput)
	}
	return best, nil
}

// Services that nobody had in mind when the law was made. With -v, the worst are listed.
//
//	go test ./examples/simulate -run TestRandomServices -random 40 -v
func TestRandomServices(t *testing.T) {
	if race.Enabled {
		t.Skip("a simulation is one goroutine: its figures are checked without the race detector, ten times faster")
	}
	spillway, err := gateOf("spillway")
	require.NoError(t, err)
	bare, err := gateOf("none")
	require.NoError(t, err)
	for _, kind := range split(*randomKinds) {
		t.Run(kind, func(t *testing.T) {
			draws := make([]draw, *randomCases)
			kept, wrong, lines := make([]float64, len(draws)), make([]float64, len(draws)), make([]string, len(draws))
			require.NoError(t, parallel(len(draws), func(i int) error {
				d := randomServices[kind](rand.New(rand.NewPCG(uint64(i), 1)))
				seed := uint64(i)
				got, err := sim.Run(d.scenario, seed, spillway(seed))
				if err != nil {
					return err
				}
				none, err := sim.Run(d.scenario, seed, bare(seed))
				if err != nil {
					return err
				}
				if d.swept != nil {
					if d.best, err = bestFixed(d.scenario, seed, d.swept); err != nil {
						return err
					}
				}
				kept[i] = min(got.Goodput/cmp.Or(d.best, none.Goodput), 1)
				if none.InTime >= roomy {
					wrong[i] = got.Shed
				}
				lines[i] = fmt.Sprintf("%-48s kept %.3f bare %.3f wrong %.3f p99 %v", d.name, kept[i], none.Goodput, wrong[i], got.P99.Round(ms))
				return nil
			}, func(int) error { return nil }))
			var mean, refused float64
			worst := 0
			for i := range draws {
				mean += kept[i] / float64(len(draws))
				refused += wrong[i] / float64(len(draws))
				if wrong[i] > 0.01 {
					worst++
				}
				if kept[i] < 0.95 || wrong[i] > 0.01 {
					t.Log(lines[i])
				}
			}
			t.Logf("%s: %d services keep %.4f in the mean; %d refuse more than 1 %% wrongly, %.4f in the mean", kind, len(draws), mean, worst, refused)
			require.Greater(t, mean, 0.85)
		})
	}
}
