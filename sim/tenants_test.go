package sim_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

// tenants is a step of a scenario of the library whose requests come from tenants with the given loads.
func tenants(base string, loads []float64) sim.Scenario {
	all := 0.0
	for _, load := range loads {
		all += load
	}
	s := sim.Named(base, all)
	s.Machine.Cores = 8
	s.Phases[0].For, s.Phases[2].For = 15*time.Second, 5*time.Second
	class := s.Classes[0]
	s.Classes = nil
	for i, load := range loads {
		class.Name, class.Key, class.Share = strconv.Itoa(i), "tenant-"+strconv.Itoa(i), load
		s.Classes = append(s.Classes, class)
	}
	return s
}

// jain returns the index of fairness of Jain, Chiu and Hawe: 1 if all are equal, and 1/n if one has all.
func jain(xs []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range xs {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(xs)) * squares)
}

func servedOf(r *sim.Result) []float64 {
	out := make([]float64, len(r.Classes))
	for i, c := range r.Classes {
		out[i] = c.Served
	}
	return out
}

func mean(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

func repeat(load float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = load
	}
	return out
}

// One tenant sends nine tenths of three times the capacity. The others do not notice.
func TestANoisyTenantDoesNotHurtTheOthers(t *testing.T) {
	for _, base := range []string{"step", "pool"} {
		t.Run(base, func(t *testing.T) {
			s := tenants(base, append([]float64{2.7}, repeat(0.003, 100)...))
			s.Machine.Cores = 2
			r := play(t, s, 1, behindShedder)
			others := servedOf(r)[1:]
			off, _ := playOrder(t, s, true)
			t.Logf("others %.4f, Jain %.4f; the noisy one %.4f; goodput %.3f, without keys %.3f", mean(others), jain(others), r.Classes[0].Served,
				r.Goodput, off.Goodput)
			require.GreaterOrEqual(t, mean(others), 0.99)
			require.GreaterOrEqual(t, jain(others), 0.98)
			require.GreaterOrEqual(t, r.Goodput, off.Goodput-0.02)
		})
	}
}

// The noisy tenant may have cheaper or dearer requests than the others.
func TestANoisyTenantOfAnotherCost(t *testing.T) {
	for _, cost := range []float64{0.6, 1.7} {
		s := tenants("pool", append([]float64{2.7}, repeat(0.003, 100)...))
		stages := slices.Clone(s.Classes[0].Stages)
		for i := range stages {
			stages[i].Wait.Fixed = time.Duration(cost * float64(stages[i].Wait.Fixed))
		}
		s.Classes[0].Stages = stages
		r := play(t, s, 1, behindShedder)
		require.GreaterOrEqual(t, mean(servedOf(r)[1:]), 0.99, "%v", cost)
	}
}

// Tenants of many sizes: each gets at least its max-min fair share of what is served.
func TestTenantsGetTheirMaxMinFairShares(t *testing.T) {
	loads := map[string][]float64{
		"equal-20": repeat(0.15, 20),
		"equal-40": repeat(0.075, 40),
		"zipf":     nil,
		"two":      {2, 1},
		"steps":    append(append(repeat(0.02, 20), repeat(0.08, 5)...), repeat(0.55, 4)...),
	}
	for i := range 40 {
		loads["zipf"] = append(loads["zipf"], 0.7/float64(i+1))
	}
	for name, loads := range loads {
		for _, base := range []string{"step", "pool"} {
			t.Run(name+"-"+base, func(t *testing.T) {
				r := play(t, tenants(base, loads), 1, behindShedder)
				fair := fairShares(loads, r.Goodput)
				worst, at := 1.0, 0
				for i, got := range servedOf(r) {
					if ratio := got * loads[i] / fair[i]; ratio < worst {
						worst, at = ratio, i
					}
				}
				t.Logf("goodput %.3f; tenant %d of load %.3f gets %.3f of its fair share", r.Goodput, at, loads[at], worst)
				require.GreaterOrEqual(t, worst, 0.8)
			})
		}
	}
}

// Many heavy tenants, of dear requests or not, share so little that a fair share is fewer requests than it takes to know a
// rate. Light tenants send less than that, and are served all the same.
func TestManyHeavyTenantsDoNotHurtLightOnes(t *testing.T) {
	for _, c := range []struct {
		base  string
		heavy int
		cost  float64 // of their requests
	}{{"pool", 100, 1}, {"pool", 60, 1.7}, {"step", 200, 1}} {
		const light = 50
		s := tenants(c.base, append(repeat(2.9/c.cost/float64(c.heavy), c.heavy), repeat(0.1/light, light)...))
		for i := range c.heavy {
			stages := slices.Clone(s.Classes[i].Stages)
			for j := range stages {
				for _, d := range []*time.Duration{&stages[j].CPU.Fixed, &stages[j].CPU.Exp, &stages[j].Wait.Fixed, &stages[j].Wait.Exp} {
					*d = time.Duration(c.cost * float64(*d))
				}
			}
			s.Classes[i].Stages = stages
		}
		r := play(t, s, 1, behindShedder)
		served := servedOf(r)
		worst := slices.Min(served[c.heavy:])
		t.Logf("%d heavy tenants, %.2f of them served; light ones %.3f, the worst %.3f", c.heavy, mean(served[:c.heavy]), mean(served[c.heavy:]), worst)
		require.GreaterOrEqual(t, worst, 0.85, "%+v", c)
	}
}

// fairShares returns the max-min fair shares of what is served.
func fairShares(loads []float64, served float64) []float64 {
	level, step := 0.0, served
	for range 60 { // bisection
		sum := 0.0
		for _, load := range loads {
			sum += math.Min(load, level+step)
		}
		if sum <= served {
			level += step
		}
		step /= 2
	}
	out := make([]float64, len(loads))
	for i, load := range loads {
		out[i] = math.Min(load, level)
	}
	return out
}

// Weights hold, and may be tuned while the service is overloaded.
func TestWeightsOfTenants(t *testing.T) {
	s := tenants("pool", []float64{1, 1, 1})
	var shed *shedder.Shedder
	got := map[string]float64{}
	figures(t)
	_, err := sim.Run(s, 1, func(h *sim.Host) (*spillway.Gate, error) {
		var err error
		shed, err = shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched(), Weights: map[string]float64{"tenant-0": 2}})
		o := &order{Policy: shed, refused: map[spillway.Priority]time.Time{}, byKey: map[string]*[2]int{}}
		h.Every(time.Second, func(seconds float64) {
			switch seconds {
			case 25, 55:
				o.byKey = map[string]*[2]int{}
			case 40, 70:
				for key, n := range o.byKey {
					got[fmt.Sprintf("%s at %v", key, seconds)] = float64(n[1])
				}
			}
			if seconds == 45 {
				options := shed.Options()
				options.Weights = map[string]float64{"tenant-1": 0.5}
				require.NoError(t, shed.Tune(options))
			}
		})
		return spillway.New(o), err
	})
	require.NoError(t, err)
	t.Log(got)
	require.InEpsilon(t, 2, got["tenant-0 at 40"]/got["tenant-1 at 40"], 0.15)
	require.InEpsilon(t, 1, got["tenant-1 at 40"]/got["tenant-2 at 40"], 0.15)
	require.InEpsilon(t, 0.5, got["tenant-1 at 70"]/got["tenant-2 at 70"], 0.15)
	require.InEpsilon(t, 1, got["tenant-0 at 70"]/got["tenant-2 at 70"], 0.15)
}

// While there is room, keys change nothing.
func TestKeysChangeNothingWhileThereIsRoom(t *testing.T) {
	for _, base := range []string{"step", "pool"} {
		s := tenants(base, append([]float64{0.6}, repeat(0.002, 100)...))
		off, _ := playOrder(t, s, true)
		on, _ := playOrder(t, s, false)
		require.InDelta(t, off.Goodput, on.Goodput, 0.002, base)
		require.LessOrEqual(t, on.Shed, off.Shed+0.001)
	}
}

// A client that invents a key for each request takes its share of the requests, and no more than it would without keys.
func TestInventedKeys(t *testing.T) {
	s := tenants("pool", append([]float64{2}, repeat(0.1, 10)...))
	s.Classes[0].Keys = 1 << 30
	r := play(t, s, 1, behindShedder)
	t.Logf("invented keys %.3f, tenants %.3f", r.Classes[0].Served, mean(servedOf(r)[1:]))
	require.LessOrEqual(t, 2*r.Classes[0].Served, 0.9+0.03, "of the capacity")
	require.GreaterOrEqual(t, mean(servedOf(r)[1:]), 0.08)
}
