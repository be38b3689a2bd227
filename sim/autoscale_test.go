package sim_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

// period is the time between two looks of a HorizontalPodAutoscaler.
const period = 15 * time.Second

// An autoscaled is what an autoscaler saw and did in each period.
type autoscaled struct {
	hosts  []int     // processes in each period
	served []float64 // share of the requests that were answered
}

// autoscale offers 5 times the capacity of two hosts for some periods, and lets an autoscaler choose the number of hosts after
// each. It asks for hosts × metric / target, rounded up, unless the ratio is within 10 % of 1, as Kubernetes does.
func autoscale(t testing.TB, periods int, metric func(shedder.Stats) float64, target float64) (out autoscaled) {
	t.Helper()
	figures(t)
	const first, load = 2, 5.0
	hosts := first
	for i := range periods {
		var sheds []*shedder.Shedder
		scenario := sim.Scenario{
			Name:    "autoscale",
			Machine: sim.Machine{Hosts: hosts, Cores: 2, Balance: sim.RoundRobin},
			Classes: []sim.Class{{Name: "page", Share: 1, Stages: []sim.Stage{{CPU: sim.Dist{Exp: 8 * time.Millisecond}}}}},
			Phases:  []sim.Phase{{For: period, Load: load * first / float64(hosts), Measured: true}},
		}
		sum, looks := 0.0, 0.0
		result, err := sim.Run(scenario, uint64(i+1), func(h *sim.Host) (*spillway.Gate, error) {
			shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched()})
			sheds = append(sheds, shed)
			h.Every(time.Second, func(seconds float64) {
				if seconds > period.Seconds()-5 { // the average of the last five seconds, as a scrape interval would give
					sum += metric(shed.Stats())
					looks++
				}
			})
			return spillway.New(shed), err
		})
		require.NoError(t, err)
		out.hosts = append(out.hosts, hosts)
		out.served = append(out.served, result.Classes[0].Served)
		t.Logf("%d hosts: served %.2f, goodput %.2f, metric %.2f", hosts, result.Classes[0].Served, result.Goodput, sum/looks)
		if ratio := sum / looks / target; math.Abs(ratio-1) > 0.1 {
			hosts = int(math.Ceil(float64(hosts) * ratio))
		}
	}
	return out
}

// The CPU says only that it is full, so an autoscaler by CPU goes up by a quarter at each look. The demand says how much is
// missing.
func TestAutoscalingByDemandIsEnoughAtOnce(t *testing.T) {
	byCPU := autoscale(t, 8, func(s shedder.Stats) float64 { return s.CPUSmooth }, 0.8)
	byDemand := autoscale(t, 6, func(s shedder.Stats) float64 { return s.Demand }, 0.8)
	const needed = 10 // processes for all requests
	require.LessOrEqual(t, byCPU.hosts[1], 3, "a full CPU asks for a quarter more")
	require.Less(t, byCPU.hosts[4], needed, "after a minute there are still too few")
	require.GreaterOrEqual(t, byCPU.hosts[7], needed, "in the end there are enough")
	require.GreaterOrEqual(t, byDemand.hosts[1], needed)
	for _, hosts := range byDemand.hosts[1:] {
		require.InDelta(t, needed/0.8, hosts, 2, "the demand asks for what is needed, and no more")
	}
	var sum [2]float64
	for i := range 6 {
		sum[0] += byCPU.served[i] / 6
		sum[1] += byDemand.served[i] / 6
	}
	t.Logf("served in the first 90 s: %.2f by CPU, %.2f by demand", sum[0], sum[1])
	require.Less(t, sum[0], 0.55)
	require.Greater(t, sum[1], 0.8)
}
