package main

import (
	"fmt"
	"time"

	"github.com/spillway-go/spillway/sim"
)

// pool is a step for a pool of slots on a machine with an almost idle CPU.
func pool(name string, slots, cores int, hold sim.Dist) func(float64) sim.Scenario {
	return func(load float64) sim.Scenario {
		scenario := step(lib("pool"))(load)
		scenario.Name = name
		scenario.Machine.Cores, scenario.Machine.Pools = cores, map[string]int{"db": slots}
		scenario.Classes[0].Stages[1].Wait = hold
		scenario.Classes[0].Stages[1].Name = "db"
		return scenario
	}
}

var ( // of the pools that several rows use
	bimodalHold   = sim.Dist{Fixed: 10 * ms, Dear: 100 * ms, DearShare: 0.1}
	lognormalHold = sim.Dist{LogNormal: 20 * ms, Sigma: 1}
)

func pool8() func(float64) sim.Scenario {
	return pool("pool-8x25ms-64-cores", 8, 64, sim.Dist{Fixed: 25 * ms})
}

func pool64() func(float64) sim.Scenario {
	return pool("pool-64x50ms", 64, 2, sim.Dist{Fixed: 50 * ms})
}

func pool2(cores int) func(float64) sim.Scenario {
	return withClient(5*sec, 10*sec, pool(fmt.Sprintf("pool-2x1s-%d-cores", cores), 2, cores, sim.Dist{Fixed: sec}))
}

// long plays a scenario's step for five minutes, because a pool at 1.01 times its capacity fills slowly.
func long(of func(float64) sim.Scenario) func(float64) sim.Scenario {
	return func(load float64) sim.Scenario { return lasting(of(load), 15*sec, 300*sec, 15*sec) }
}

// poolRows are services that wait for their own pool or lock.
func poolRows() []suiteRow {
	pool16 := pool("pool-16x20ms", 16, 2, sim.Dist{Fixed: 20 * ms})
	return join(
		at(step(lib("pool")), 1.15, 1.5, 2, 5, 10),
		at(pool8(), 1.2, 2, 5, 10),
		at(pool2(2), 1.5, 2, 5),
		at(pool2(16), 2, 3),
		at(long(pool16), 1, 1.05, 1.15),
		at(pool16, 1.3, 2),
		at(pool64(), 1.15, 1.5, 2, 5),
		at(pool("pool-bimodal", 16, 2, bimodalHold), 1.15, 1.5, 2, 5),
		at(pool("pool-lognormal", 16, 2, lognormalHold), 1.15, 1.5, 2, 5),
		at(pool("pool-exp", 16, 2, sim.Dist{Exp: 20 * ms}), 1.15, 1.5, 2, 5),
		remedied(perRoute, at(step(lib("lock")), 1.2, 2, 5, 10)),
		at(lock32, 1.2, 2, 5),
		one(3, poolRamp()),
		one(3, bursts("bursts-pool", sim.Named("pool", 1))),
		one(3, poolStorm()),
		at(poolIdle, 3),
		at(func(load float64) sim.Scenario {
			scenario := withName("impatient-pool", pool("", 8, 2, sim.Dist{Fixed: 25 * ms})(load))
			scenario.Client.Deadline, scenario.Client.Useful = 200*ms, 200*ms
			return scenario
		}, 2, 5),
		at(poolPriorities, 5),
		at(poolQuota, 2, 5),
		at(poolHosts, 2),
		at(withClient(5*sec, 10*sec, pool("pool-100x1s", 100, 2, sim.Dist{Exp: sec})), 1.2, 3),
	)
}

// lock32 is a step for requests that all hold one lock for 5 ms, on 32 cores.
func lock32(load float64) sim.Scenario {
	return pool("lock-5ms-32-cores", 1, 32, sim.Dist{Fixed: 5 * ms})(load)
}

func poolRamp() sim.Scenario {
	scenario := sim.Named("pool", 1)
	scenario.Name, scenario.Phases = "ramp-pool", lasting(sim.Named("ramp", 0), 30*sec, 30*sec).Phases
	return scenario
}

func poolStorm() sim.Scenario {
	scenario := sim.Named("pool", 1)
	scenario.Name, scenario.Phases = "retry-storm-pool", lasting(sim.Named("retry-storm", 0), 15*sec, 5*sec, 30*sec).Phases
	scenario.Client.Retries = 3
	return scenario
}

func poolIdle(load float64) sim.Scenario {
	scenario := sim.Named("pool", load)
	scenario.Name, scenario.Phases = "idle-step-pool", lasting(sim.Named("idle-step", load), 10*sec, 30*sec, 20*sec).Phases
	return scenario
}

func poolPriorities(load float64) sim.Scenario {
	scenario := step(lib("priorities"))(load)
	scenario.Name, scenario.Machine = "priorities-pool", sim.Named("pool", 1).Machine
	for i := range scenario.Classes {
		scenario.Classes[i].Stages = sim.Named("pool", 1).Classes[0].Stages
	}
	return scenario
}

// poolQuota is a step for a pool on a host with a quota of half a CPU, of which the requests need half.
func poolQuota(load float64) sim.Scenario {
	scenario := pool("pool-quota", 8, 2, sim.Dist{Fixed: 10 * ms, Exp: 15 * ms})(load)
	scenario.Machine.Cores, scenario.Machine.Quota = 1, 0.5
	scenario.Classes[0].Stages[0].CPU = sim.Dist{Exp: 750 * time.Microsecond}
	return scenario
}

// poolHosts is a step for four hosts behind a balancer, each with a pool of 8.
func poolHosts(load float64) sim.Scenario {
	scenario := pool("pool-4-hosts", 8, 2, sim.Dist{Fixed: 25 * ms})(load)
	scenario.Machine.Hosts, scenario.Machine.Balance = 4, sim.RoundRobin
	return scenario
}

// edgeRows are pools just below their capacity, and services with few, uneven calls. There random bursts sometimes fill
// the pool.
func edgeRows() []suiteRow {
	dear := withClient(sec, 3*sec, pool("dear-120ms", 8, 2, sim.Dist{LogNormal: 120 * ms, Sigma: 0.7}))
	return join(
		at(steady("edge-8x25ms", 40*sec, pool8()), 0.8, 0.9, 0.95),
		at(steady("edge-64x50ms", 40*sec, pool64()), 0.9, 0.98),
		at(steady("edge-2x1s", 120*sec, pool2(2)), 0.5, 0.8, 0.95),
		at(steady("edge-bimodal", 40*sec, pool("", 16, 2, bimodalHold)), 0.8, 0.9),
		at(steady("edge-lognormal", 40*sec, pool("", 16, 2, lognormalHold)), 0.8, 0.9),
		at(steady("edge-dear-120ms", 60*sec, dear), 0.9, 0.98),
		at(dear, 1.1, 2, 5),
		at(steady("edge-lock-5ms", 40*sec, lock32), 0.8, 0.9),
		at(onOff("on-off-pool", pool("", 8, 2, sim.Dist{Fixed: 25 * ms})), 0.8, 2),
		at(onOff("on-off-2x1s", pool2(2)), 0.5),
	)
}

// solidPool is a pool of two slots behind 15 ms of CPU that does not yield, under a quota of which these take most.
func solidPool(load float64) sim.Scenario {
	scenario := withClient(1200*ms, 2400*ms, pool("pool-2x60ms-solid", 2, 2, sim.Dist{Fixed: 30 * ms, Exp: 30 * ms}))(load)
	scenario.Machine.Quota, scenario.Capacity = 0.86, 0
	scenario.Classes[0].Stages[0] = sim.Stage{CPU: sim.Dist{Fixed: 15 * ms}}
	scenario.Classes[0].Slice = sec
	return scenario
}

// coldRows start straight into overload.
func coldRows() []suiteRow {
	return join(
		at(cold("cold-cpu", lib("step")), 1.05, 1.1, 1.2, 2, 3, 5, 10),
		at(cold("cold-cpu-solid", lib("step-solid")), 3, 10),
		at(cold("cold-solid-quota", solidAndQuota), 1.1, 2, 3, 10),
		at(cold("cold-solid-wait-quota", solidAndWaitAndQuota), 1.5, 3, 10),
		at(cold("cold-2x60ms-solid", solidPool), 1.2, 2, 3, 5, 10),
		at(cold("cold-cpu-io", lib("cpu-io")), 3),
		at(cold("cold-8x25ms", pool8()), 2, 3, 5, 10),
		at(cold("cold-64x50ms", pool64()), 2, 3, 5, 10),
		at(cold("cold-2x1s", pool2(2)), 2, 3, 5, 10),
		at(cold("cold-pool-exp", pool("", 16, 2, sim.Dist{Exp: 20 * ms})), 3),
		at(cold("cold-pool-lognormal", pool("", 16, 2, lognormalHold)), 3, 10),
		at(cold("cold-dear-120ms", withClient(sec, 3*sec, pool("", 8, 2, sim.Dist{LogNormal: 120 * ms, Sigma: 0.7}))), 3),
		at(cold("cold-pool-quota", poolQuota), 3),
		at(cold("cold-100x1s", withClient(5*sec, 10*sec, pool("", 100, 2, sim.Dist{Exp: sec}))), 3),
		at(cold("cold-lock-5ms", lock32), 3),
		at(cold("cold-mix", mix), 1.1, 2, 3, 5, 10),
		at(coldMixQuota, 2, 3, 5),
		at(connects("cold-pool-connects", pool8()), 1.2, 1.5, 2, 3),
		at(connects("cold-mix-connects", mix), 1.2, 1.5, 2, 3),
		at(coldSlow, 2, 5),
	)
}

// connects is a cold start whose database needs half a second for the first connections.
func connects(name string, of func(load float64) sim.Scenario) func(load float64) sim.Scenario {
	return func(load float64) sim.Scenario {
		scenario := cold(name, of)(load)
		scenario.Events = []sim.Event{{Stage: "db", Stall: 500 * ms}}
		return scenario
	}
}

// coldSlow is a pool that works at a fifteenth of its speed for the first seconds, such as a database with cold caches.
func coldSlow(load float64) sim.Scenario {
	scenario := cold("cold-slow-start", withClient(300*ms, 10*sec, pool("", 8, 2, sim.Dist{Fixed: 25 * ms})))(load)
	scenario.Events = []sim.Event{{Stretch: 15}, {At: 2 * sec, Stretch: 1}}
	return scenario
}

// mix is a step for three routes of different cost in front of a pool of 8, which needs some CPU too.
func mix(load float64) sim.Scenario {
	scenario := step(lib("pool"))(load)
	scenario.Name = "mix"
	route := func(name string, share float64, cpu, hold time.Duration) sim.Class {
		return sim.Class{Name: name, Key: name, Share: share, Stages: []sim.Stage{
			{CPU: sim.Dist{Exp: cpu}},
			{Name: "db", Wait: sim.Dist{Fixed: hold / 2, Exp: hold / 2}, During: "db"},
			{CPU: sim.Dist{Exp: cpu}},
		}}
	}
	scenario.Classes = []sim.Class{
		route("row", 70, 200*time.Microsecond, 2*ms),
		route("list", 20, 500*time.Microsecond, 10*ms),
		route("aggregate", 10, 300*time.Microsecond, 80*ms),
	}
	scenario.Client = sim.Client{Useful: 500 * ms, Deadline: 2 * sec}
	return scenario
}

// mixBusy is mix where the CPU is nearly as scarce as the pool.
func mixBusy(load float64) sim.Scenario {
	scenario := mix(load)
	scenario.Name, scenario.Machine.Cores, scenario.Machine.Quota = "mix-busy", 1, 0.8
	return scenario
}

// mixQuota is mix where refusals leave too little of a CPU quota.
func mixQuota(load float64) sim.Scenario {
	scenario := mix(load)
	scenario.Machine.Cores, scenario.Machine.Quota, scenario.Machine.Parse = 1, 0.4, 100*time.Microsecond
	return scenario
}

// coldMixQuota is a cold start of mixQuota whose database needs a moment for the first connections.
func coldMixQuota(load float64) sim.Scenario {
	scenario := cold("cold-mix-quota", mixQuota)(load)
	scenario.Events = []sim.Event{{Stage: "db", Stall: 350 * ms}}
	return scenario
}

func mixRows() []suiteRow {
	return remedied(perRoute, join(
		at(steady("edge-mix", 40*sec, mix), 0.9, 0.98),
		at(mix, 1.1, 2, 5, 10),
		at(mixBusy, 1.1, 2, 5),
		at(steady("edge-mix-busy", 40*sec, mixBusy), 0.9),
	))
}

// faultRows are pools whose database stops, is locked, or has fewer slots for a while.
func faultRows() []suiteRow {
	with := func(name string, of func(float64) sim.Scenario, events ...sim.Event) func(float64) sim.Scenario {
		return func(load float64) sim.Scenario {
			scenario := of(load)
			scenario.Name, scenario.Events = name, events
			scenario.Phases = three(min(load, 0.7), load)
			return scenario
		}
	}
	lock := sim.Event{At: 20 * sec, Stage: "db", Stall: 5 * sec}
	stop := sim.Event{At: 20 * sec, Stage: "db", Stall: 3 * sec}
	less, more := sim.Event{At: 15 * sec, Pool: "db", Slots: 4}, sim.Event{At: 35 * sec, Pool: "db", Slots: 8}
	exp := pool("", 8, 2, sim.Dist{Fixed: 10 * ms, Exp: 10 * ms})
	// A database that comes back connects anew and has cold caches: it is slow for a second, and some calls fail.
	cold, warm := sim.Event{At: 23 * sec, Stage: "db", Stretch: 6, Fails: 0.2}, sim.Event{At: 24 * sec, Stage: "db", Stretch: 1, Fails: -0.2}
	down, up := sim.Event{At: 20 * sec, Stage: "db", Fails: 1}, sim.Event{At: 23 * sec, Stage: "db", Fails: -1}
	slow, fast := sim.Event{At: 20 * sec, Stage: "db", Stretch: 8}, sim.Event{At: 25 * sec, Stage: "db", Stretch: 1}
	mute := sim.Event{At: 20 * sec, Stage: "db", Fails: 1, Stretch: 50}
	return join(
		at(with("pool-locked-5s", exp, lock), 0.7, 2),
		at(with("db-stopped-3s", exp, stop), 0.7, 2),
		at(with("db-stalls-700ms", pool("", 4, 2, sim.Dist{Fixed: 25 * ms}), sim.Event{At: 20 * sec, Stage: "db", Stall: 700 * ms}), 0.9, 0.95),
		at(with("db-slow-5s", exp, slow, fast), 0.8, 2),
		at(with("db-slow-1s", exp, sim.Event{At: 23 * sec, Stage: "db", Stretch: 6}, sim.Event{At: 24 * sec, Stage: "db", Stretch: 1}), 0.7, 2, 5),
		at(with("db-restarted", exp, stop, cold, warm), 0.7, 2, 5),
		at(with("db-fails-3s", exp, down, up, cold, warm), 0.7, 2, 5),
		at(with("db-times-out-3s", exp, mute, up, cold, warm), 0.7, 2),
		at(with("pool-halved", exp, less, more), 0.4, 0.8),
		remedied(perRoute, join(
			at(with("mix-locked-5s", mix, lock), 0.7, 2),
			at(with("mix-stopped-3s", mix, stop), 0.7, 2),
			at(with("mix-restarted", mix, stop, cold, warm), 0.7, 2),
		)),
	)
}
