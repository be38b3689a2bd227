package sim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

// An order is a shedder that notes inversions: requests admitted less than 20 ms after one of a higher priority was
// refused.
type order struct {
	spillway.Policy
	flat       bool // without priorities and keys
	refused    map[spillway.Priority]time.Time
	admitted   int
	inversions int
	byKey      map[string]*[2]int // asked and admitted
}

func (o *order) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	p, key := r.Priority, r.Key
	if o.flat {
		r.Priority, r.Key = 0, ""
	}
	ticket, err := o.Policy.Admit(ctx, r)
	if o.byKey[key] == nil {
		o.byKey[key] = new([2]int)
	}
	o.byKey[key][0]++
	if err != nil {
		o.refused[p] = r.Arrived
		return 0, err
	}
	o.byKey[key][1]++
	o.admitted++
	for higher, at := range o.refused {
		if higher > p && r.Arrived.Sub(at) < 20*time.Millisecond {
			o.inversions++
			break
		}
	}
	return ticket, nil
}

func playOrder(t *testing.T, s sim.Scenario, flat bool) (*sim.Result, *order) {
	t.Helper()
	figures(t)
	var o *order
	r, err := sim.Run(s, 1, func(h *sim.Host) (*spillway.Gate, error) {
		shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched()})
		o = &order{Policy: shed, flat: flat, refused: map[spillway.Priority]time.Time{}, byKey: map[string]*[2]int{}}
		return spillway.New(o), err
	})
	require.NoError(t, err)
	return r, o
}

// classes is a step of a scenario of the library whose requests are of three priorities. Critical and normal ones are
// given shares of the capacity; the rest are sheddable.
func classes(base string, cores int, load, critical, normal float64) sim.Scenario {
	s := sim.Named(base, load)
	s.Machine.Cores = cores
	s.Phases[0].For, s.Phases[2].For = 15*time.Second, 15*time.Second
	of := func(name string, p spillway.Priority, share float64) sim.Class {
		c := s.Classes[0]
		c.Name, c.Priority, c.Share = name, p, share
		return c
	}
	s.Classes = []sim.Class{
		of("critical", spillway.Critical, critical), of("normal", spillway.Normal, normal),
		of("sheddable", spillway.Sheddable, load-critical-normal),
	}
	return s
}

// At ten times the capacity, critical requests are served as if they were alone, and in order: what the higher
// priorities leave goes to the lower ones.
func TestCriticalRequestsAreServedAtTenTimesTheCapacity(t *testing.T) {
	for _, c := range []struct {
		base             string
		cores            int
		critical, normal float64
		least            float64 // share of the critical ones that is served
		slower           float64 // 99th percentile, as a multiple of that with priorities off
		inversions       float64 // share of the admitted
		lost             float64 // goodput, against priorities off
	}{
		{"pool", 2, 0.2, 1, 0.999, 1, 0.001, 0.01},
		{"pool", 2, 0.5, 1, 0.999, 1, 0.001, 0.01},
		{"pool", 2, 0.8, 1, 0.999, 1.5, 0.001, 0.01},
		{"pool", 2, 0.89, 1, 0.999, 2.1, 0.001, 0.01},
		{"step", 8, 0.5, 1, 0.999, 1, 0.001, 0.015},
		{"step", 8, 0.8, 1, 0.999, 1.1, 0.001, 0.01},
		{"step", 2, 0.5, 1, 0.998, 1.6, 0.01, 0.025},
	} {
		t.Run(fmt.Sprintf("%s-%d-%v", c.base, c.cores, c.critical), func(t *testing.T) {
			s := classes(c.base, c.cores, 10, c.critical, c.normal)
			off, _ := playOrder(t, s, true)
			on, o := playOrder(t, s, false)
			inversions := float64(o.inversions) / float64(o.admitted)
			t.Logf("goodput %.3f, off %.3f; critical %.4f in %v, off %v; normal %.3f, sheddable %.4f; inversions %.4f", on.Goodput, off.Goodput,
				on.Classes[0].Served, on.Classes[0].P99, off.P99, on.Classes[1].Served, on.Classes[2].Served, inversions)
			require.GreaterOrEqual(t, on.Classes[0].Served, c.least)
			require.LessOrEqual(t, on.Classes[0].P99.Seconds(), c.slower*off.P99.Seconds())
			require.LessOrEqual(t, inversions, c.inversions)
			require.GreaterOrEqual(t, on.Goodput, off.Goodput-c.lost)
			require.GreaterOrEqual(t, on.Classes[1].Served, 0.9*(off.Goodput-c.lost-c.critical), "normal requests get the rest")
			require.LessOrEqual(t, on.Classes[2].Served, 0.015, "nothing is left")
		})
	}
}

// A priority that is alone gets what normal requests alone get, to the bit.
func TestAPriorityAloneIsServedAsNormalOnesAre(t *testing.T) {
	for _, base := range []string{"step", "pool"} {
		for _, load := range []float64{2, 5} {
			s := within(sim.Named(base, load), 3)
			want := play(t, s, 1, behindShedder)
			for _, p := range []spillway.Priority{-1000, spillway.Sheddable, spillway.Critical, 7} {
				s.Classes[0].Priority = p
				require.InDelta(t, want.Goodput, play(t, s, 1, behindShedder).Goodput, 1e-9, "%s at %v, priority %v", base, load, p)
			}
		}
	}
}

// After an overload, low priorities are let in again as soon as there is room.
func TestLowPrioritiesAreServedAgainAtOnce(t *testing.T) {
	for _, base := range []string{"step", "pool"} {
		r := play(t, classes(base, 2, 5, 0.5, 1.5), 1, behindShedder)
		require.LessOrEqual(t, r.Recovered, 1500*time.Millisecond, base)
	}
}

// A pool at twice its capacity serves some users well rather than all of them now and then.
func TestTheSameUsersAreShed(t *testing.T) {
	s := sim.Named("pool", 2)
	s.Classes[0].Keys = 500
	s.Phases = []sim.Phase{{For: 5 * time.Second, Load: 0.5}, {For: time.Minute, Load: 2, Measured: true}}
	split := func(flat bool) (decided float64, r *sim.Result) {
		r, o := playOrder(t, s, flat)
		for _, n := range o.byKey {
			if share := float64(n[1]) / float64(n[0]); share < 0.3 || share > 0.7 {
				decided += 1 / float64(len(o.byKey))
			}
		}
		return decided, r
	}
	chance, off := split(true)
	byKey, on := split(false)
	t.Logf("users with a clear answer: %.2f by chance, %.2f by key", chance, byKey)
	require.Less(t, chance, 0.2)
	require.Greater(t, byKey, 0.8)
	require.InDelta(t, off.Goodput, on.Goodput, 0.01)
}
