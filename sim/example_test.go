package sim_test

import (
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

func ExampleScenario() {
	shop := sim.Scenario{
		Name:    "shop",
		Machine: sim.Machine{Hosts: 3, Cores: 4, Balance: sim.RoundRobin, Pools: map[string]int{"db": 20}},
		Classes: []sim.Class{
			{Name: "page", Share: 9, Stages: []sim.Stage{{CPU: sim.Dist{Exp: 8 * time.Millisecond}}}},
			{Name: "order", Share: 1, Priority: spillway.Critical, Stages: []sim.Stage{
				{CPU: sim.Dist{Fixed: 2 * time.Millisecond}},
				{Name: "stock", Wait: sim.Dist{Fixed: 10 * time.Millisecond, Exp: 10 * time.Millisecond}, During: "db"},
			}},
		},
		Client: sim.Client{Useful: 300 * time.Millisecond, Deadline: 2 * time.Second, Retries: 1},
		Phases: []sim.Phase{
			{For: 2 * time.Second, Load: 0.6},
			{For: 6 * time.Second, Load: 3, Measured: true},
			{For: 2 * time.Second, Load: 0.6},
		},
		Events: []sim.Event{
			{At: 3 * time.Second, Host: 2, Pause: 200 * time.Millisecond},
			{At: 4 * time.Second, Stage: "stock", Fails: 0.5, Slower: 100 * time.Millisecond},
			{At: 6 * time.Second, Stage: "stock", Fails: -0.5, Slower: -100 * time.Millisecond},
		},
	}
	result, err := sim.Run(shop, 1, func(h *sim.Host) (*spillway.Gate, error) {
		shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched()})
		return spillway.New(shed), err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range result.Classes {
		fmt.Println(c.Name, c.Served > 0.7)
	}
	fmt.Println("useful:", result.Goodput > 0.75, "hosts:", len(result.Hosts))
	// Output:
	// page false
	// order true
	// useful: true hosts: 3
}
