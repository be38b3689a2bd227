package shedder_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
	"github.com/spillway-go/spillway/stats"
)

func ExampleNew() {
	shed, err := shedder.New(nil) // needs no configuration, no goroutine and no Close
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := spillway.New(shed)
	permit, err := gate.Enter(context.Background(), spillway.Request{})
	if errors.Is(err, spillway.ErrRejected) {
		fmt.Println("try again in", shed.Options().CoolDown)
		return
	}
	defer permit.Done(spillway.Failure)
	fmt.Println("serving, in flight:", shed.Stats().InFlight)
	permit.Done(spillway.Success)
	// Output: serving, in flight: 1
}

// At ten times the capacity, the critical requests are all served, and the others get what is left.
func ExampleShedder_priorities() {
	load := sim.Named("pool", 10)
	work := load.Classes[0].Stages
	load.Classes = []sim.Class{
		{Name: "payments", Share: 3, Priority: spillway.Critical, Stages: work},
		{Name: "pages", Share: 10, Stages: work},
		{Name: "reports", Share: 87, Priority: spillway.Sheddable, Stages: work},
	}
	result, err := sim.Run(load, 1, func(h *sim.Host) (*spillway.Gate, error) {
		shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched()})
		return spillway.New(shed), err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range result.Classes {
		fmt.Printf("%s: %.0f %% served\n", c.Name, 100*c.Served)
	}
	// Output:
	// payments: 100 % served
	// pages: 70 % served
	// reports: 0 % served
}

// One tenant sends nine tenths of three times the capacity. The others do not notice.
func ExampleShedder_tenants() {
	load := sim.Named("pool", 3)
	noisy, others := load.Classes[0], load.Classes[0]
	noisy.Name, noisy.Key, noisy.Share = "noisy", "noisy", 9
	others.Name, others.Key, others.Share, others.Keys = "others", "tenant-", 1, 100
	load.Classes = []sim.Class{noisy, others}
	result, err := sim.Run(load, 1, func(h *sim.Host) (*spillway.Gate, error) {
		shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched()})
		return spillway.New(shed), err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range result.Classes {
		fmt.Printf("%s: %.0f %% served\n", c.Name, 100*c.Served)
	}
	// Output:
	// noisy: 26 % served
	// others: 100 % served
}

// Thresholds can be changed while requests go on.
// In bursts, up to 500 requests wait for up to 200 ms. A request whose turn would come too late is refused at once.
func ExampleOptions_queue() {
	shed, err := shedder.New(&shedder.Options{MaxQueue: 500, MaxWait: 200 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := spillway.New(shed)
	permit, err := gate.Enter(context.Background(), spillway.Request{Key: "tenant-7", Timeout: time.Second})
	if err != nil {
		fmt.Println(err) // such as "queue full" or "deadline too near"
		return
	}
	defer permit.Done(spillway.Failure)
	s := shed.Stats()
	fmt.Printf("serving %d, waiting %d\n", s.InFlight, s.Waiting)
	permit.Done(spillway.Success)
	// Output: serving 1, waiting 0
}

func ExampleShedder_Tune() {
	shed := spillway.Must(shedder.New(nil))
	o := shed.Options()
	o.CPUThreshold = 0.8           // shed earlier
	o.SLO = 250 * time.Millisecond // and keep this objective while requests are refused
	fmt.Println(shed.Tune(o), shed.Options().CPUThreshold)
	o.CPUThreshold = 80
	fmt.Println(shed.Tune(o))
	// Output:
	// <nil> 0.8
	// shedder: CPUThreshold must be in (0, 1] or Off, got 80
}

// Several Shedders, say one per route, share one CPU sampler.
func ExampleOptions_sharedSampler() {
	cpu := spillway.Must(stats.NewCPU(nil))
	search := spillway.Must(shedder.New(&shedder.Options{CPU: cpu, CPUThreshold: 0.8}))
	checkout := spillway.Must(shedder.New(&shedder.Options{CPU: cpu, CPUThreshold: 0.95}))
	fmt.Println(search.Options().CPUThreshold, checkout.Options().CPUThreshold)
	// Output: 0.8 0.95
}

// No policy reads the clock, so an hour of traffic runs in an instant.
func ExampleShedder_virtualTime() {
	idle := func() (float64, error) { return 0.1, nil }
	cpu := spillway.Must(stats.NewCPU(&stats.CPUOptions{Read: idle}))
	shed := spillway.Must(shedder.New(&shedder.Options{CPU: cpu}))
	gate := spillway.New(shed)
	for now := time.Unix(0, 0); now.Before(time.Unix(3600, 0)); now = now.Add(50 * time.Millisecond) {
		if permit, err := gate.Enter(context.Background(), spillway.Request{Arrived: now}); err == nil {
			permit.DoneAt(now.Add(10*time.Millisecond), spillway.Success, 0)
		}
	}
	fmt.Println(shed.Stats().MinRT, shed.Stats().Refused)
	// Output: 10ms 0
}

// The shedder goes by further signs of overload, here memory near its limit and a pool of one's own.
func ExampleSignal() {
	memory := spillway.Must(stats.NewMemory(0)) // GOMEMLIMIT or the control group's, whichever is less
	waiting := 120.0                            // callers that wait for a connection
	shed := spillway.Must(shedder.New(&shedder.Options{Signals: []shedder.Signal{
		{Name: "memory", Read: memory.Read, Threshold: 0.95},
		{Name: "pool", Read: func(time.Time) (float64, error) { return waiting, nil }, Threshold: 100},
	}}))
	gate := spillway.New(shed)
	permit, err := gate.Enter(context.Background(), spillway.Request{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer permit.Done(spillway.Success)
	fmt.Println(shed.Stats().Overloaded, shed.Stats().Why())
	// Output: true pool
}

// A service with an objective bounds the p99 of its admitted requests by it.
func ExampleOptions_objective() {
	shed := spillway.Must(shedder.New(&shedder.Options{SLO: 250 * time.Millisecond})) // later answers are worthless
	gate := spillway.New(shed)
	if permit, err := gate.Enter(context.Background(), spillway.Request{}); err == nil {
		permit.Done(spillway.Success)
	}
	fmt.Println(shed.Options().SLO, shed.Stats().Overloaded)
	// Output: 250ms false
}

// CPUOnly keeps the rule to the letter: the limit is pass × rt, and only the CPU puts it in force.
func ExampleOptions_cpuOnly() {
	busy := func() (float64, error) { return 1, nil }
	cpu := spillway.Must(stats.NewCPU(&stats.CPUOptions{Read: busy}))
	shed := spillway.Must(shedder.New(&shedder.Options{CPU: cpu, CPUOnly: true, MinLimit: 2}))
	gate := spillway.New(shed)
	for now := time.Unix(0, 0); now.Before(time.Unix(2, 0)); now = now.Add(50 * time.Millisecond) {
		_, err := gate.Enter(context.Background(), spillway.Request{Arrived: now}) // nothing ends
		if err != nil {
			fmt.Println(err)
			break
		}
	}
	fmt.Println(shed.Stats().Reason, shed.Stats().Limit)
	// Output:
	// spillway: shedder refused: limit reached
	// cpu 2
}

// A restart goes on with what the process before it has learnt.
func ExampleShedder_Resume() {
	before := spillway.Must(shedder.New(nil))
	if err := before.Resume(200, 20*time.Millisecond); err != nil { // as if it had served requests
		fmt.Println(err)
	}
	rate, latency := before.Learnt() // save them every few seconds

	after := spillway.Must(shedder.New(nil))
	if err := after.Resume(rate, latency); err != nil {
		fmt.Println(err)
	}
	fmt.Println(after.Learnt())
	// Output: 200 20ms
}
