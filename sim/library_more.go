package sim

import (
	"fmt"
	"time"
)

// failingDependency is three minutes at half the capacity. In the second minute nine in ten calls to a dependency fail.
// The dependency is called in the middle of the CPU work.
func failingDependency() Scenario {
	s := service("failing-dependency", Phase{For: time.Minute, Load: 0.5}, Phase{For: time.Minute, Load: 0.5, Measured: true},
		Phase{For: time.Minute, Load: 0.5})
	half := Dist{Exp: 5 * time.Millisecond}
	s.Classes[0].Stages = []Stage{{Name: "dependency", CPU: half, Wait: Dist{Fixed: 20 * time.Millisecond}}, {CPU: half}}
	s.Events = []Event{
		{At: time.Minute, Stage: "dependency", Fails: 0.9}, {At: 2 * time.Minute, Stage: "dependency", Fails: -0.9},
	}
	return s
}

// quotaCut is a load of 0.8 under a quota of one CPU, which is halved for the second of three minutes.
func quotaCut() Scenario {
	s := service("quota-cut", Phase{For: time.Minute, Load: 0.8}, Phase{For: time.Minute, Load: 0.8, Measured: true},
		Phase{For: time.Minute, Load: 0.8})
	s.Machine.Quota = 1
	s.Classes[0].Stages[0].CPU = Dist{Exp: 2 * time.Millisecond}
	s.Events = []Event{{At: time.Minute, Quota: 0.5}, {At: 2 * time.Minute, Quota: 1}}
	return s
}

// criticalFlood is priorities with nineteen in twenty requests critical, so that there is not even room for all
// critical ones.
func criticalFlood(load float64) Scenario {
	s := priorities(load)
	s.Name = "critical-flood"
	for i, share := range []float64{95, 4, 1} {
		s.Classes[i].Share = share
	}
	return s
}

// noisyTenant is a step to 3 times the capacity. One tenant sends nine tenths of the requests, and a hundred small
// tenants send the rest.
func noisyTenant() Scenario {
	s := step(3)
	s.Name = "noisy-tenant"
	work := s.Classes[0].Stages
	s.Classes = []Class{{Name: "noisy", Key: "noisy", Share: 900, Stages: work}}
	for i := range 100 {
		name := fmt.Sprintf("small-%d", i)
		s.Classes = append(s.Classes, Class{Name: name, Key: name, Share: 1, Stages: work})
	}
	return s
}

// jobs is a step for jobs of one to four calls, all of which must succeed. So random refusals hurt long jobs most.
func jobs(load float64) Scenario {
	s := step(load)
	s.Name = "jobs"
	work := []Stage{{CPU: Dist{Exp: 4 * time.Millisecond}}}
	s.Classes = nil
	for calls := 1; calls <= 4; calls++ {
		s.Classes = append(s.Classes, Class{Name: fmt.Sprintf("%d-calls", calls), Share: 1, Calls: calls, Stages: work})
	}
	s.Client.Useful = 500 * time.Millisecond
	return s
}

// coldStart is a minute at nearly the full capacity from nothing; the first 500 requests need five times the CPU.
func coldStart() Scenario {
	s := service("cold-start", Phase{For: time.Minute, Load: 0.95, Measured: true})
	s.Machine.Cold = 500
	return s
}

// impatient is a step for clients that leave after 200 ms, while their requests continue.
func impatient(load float64) Scenario {
	s := step(load)
	s.Name = "impatient"
	s.Client.Deadline, s.Client.Useful = 200*time.Millisecond, 200*time.Millisecond
	return s
}

// clockJump is step with a clock that jumps an hour ahead in the middle of the overload, and back twenty seconds later.
func clockJump(load float64) Scenario {
	s := step(load)
	s.Name = "clock-jump"
	s.Events = []Event{{At: 80 * time.Second, Clock: time.Hour}, {At: 100 * time.Second, Clock: -time.Hour}}
	return s
}

// blind is step with sensors that all fail ten seconds before it, and work again in the last minute: a policy has to
// learn from the requests what its sensors do not show.
func blind(load float64) Scenario {
	s := step(load)
	s.Name = "blind"
	s.Events = []Event{{At: 50 * time.Second, Blind: true}, {At: 130 * time.Second, Sighted: true}}
	return s
}

// slowHost is a load of 0.7 on four hosts behind a balancer; in the second of three minutes the first is four times slower.
func slowHost() Scenario {
	s := service("slow-host", Phase{For: time.Minute, Load: 0.7}, Phase{For: time.Minute, Load: 0.7, Measured: true},
		Phase{For: time.Minute, Load: 0.7})
	s.Machine.Hosts, s.Machine.Balance = 4, RoundRobin
	s.Events = []Event{{At: time.Minute, Host: 1, Speed: 0.25}, {At: 2 * time.Minute, Host: 1, Speed: 1}}
	return s
}
