package sim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/overload"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

// A fleet is a number of client processes of a scenario, each key one of them.
type fleet struct {
	help      bool
	reporters map[*sim.Host]*overload.Reporter
	clients   map[string]*overload.Hosts
	base      time.Time
	sent      int // requests that reached the server during the overload
}

func (f *fleet) gate(h *sim.Host) (*spillway.Gate, error) {
	shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched()})
	if err != nil {
		return nil, err
	}
	gate := spillway.New(keyless{shed})
	f.reporters[h] = overload.NewReporter(shed.Metrics)
	return gate, nil
}

// A keyless policy does not see which client a request comes from.
type keyless struct{ *shedder.Shedder }

func (k keyless) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	r.Key = ""
	return k.Shedder.Admit(ctx, r)
}

func (f *fleet) before(h *sim.Host, r spillway.Request) (func(time.Time, bool), bool) {
	if f.base.IsZero() {
		f.base = r.Arrived
	}
	overloaded := r.Arrived.Sub(f.base) >= calmFor
	if !f.help {
		if overloaded {
			f.sent++
		}
		return nil, true
	}
	client := f.clients[r.Key]
	if client == nil {
		client = overload.NewHosts([]string{"service"}, f.base)
		f.clients[r.Key] = client
	}
	host := client.Of("service")
	if host.Refuses(r.Priority, r.Arrived) != nil {
		return nil, false
	}
	if overloaded {
		f.sent++
	}
	return func(now time.Time, refused bool) {
		report, o := f.reporters[h].Sometimes(now), spillway.Success
		if refused {
			report, o = f.reporters[h].Report(now), spillway.Dropped
		}
		var field []string
		if report != nil {
			field = report.Value
		}
		host.Answered(r.Priority, field, o, now)
	}, true
}

const calmFor, overloadFor = 10 * time.Second, 30 * time.Second

// playFleet plays s with clients of a number, and returns how many requests reached the server, as a multiple of its capacity.
func playFleet(t *testing.T, s sim.Scenario, clients int, help bool) (*sim.Result, float64) {
	t.Helper()
	f := &fleet{help: help, reporters: map[*sim.Host]*overload.Reporter{}, clients: map[string]*overload.Hosts{}}
	for i := range s.Classes {
		s.Classes[i].Key, s.Classes[i].Keys = "client-", clients
	}
	s.Client.Before = f.before
	s.Phases = []sim.Phase{{For: calmFor, Load: 0.7}, {For: overloadFor, Load: s.Phases[1].Load, Measured: true}}
	r := play(t, s, 1, f.gate)
	return r, float64(f.sent) / r.Capacity / overloadFor.Seconds()
}

// Clients that listen hold back what the server would refuse: about 1.4 times the capacity reaches it, whether they want
// to send ten times as much as it can answer or fifty times. Two CPUs that are kept full by few requests lose a little more.
func TestClientsThatHelp(t *testing.T) {
	for _, machine := range []struct {
		base    string
		cores   int
		clients []int
		least   float64 // goodput
	}{{"pool", 2, []int{1, 20}, 0.99}, {"step", 8, []int{20}, 0.97}, {"step", 2, []int{20}, 0.94}} {
		for _, clients := range machine.clients {
			at10 := 0.0
			for _, load := range []float64{10, 50} {
				t.Run(fmt.Sprintf("%s on %d/%vx/%d clients", machine.base, machine.cores, load, clients), func(t *testing.T) {
					s := sim.Named(machine.base, load)
					s.Machine.Cores = machine.cores
					plain, all := playFleet(t, s, clients, false)
					helped, reached := playFleet(t, s, clients, true)
					t.Logf("reached %.2f of the capacity, plain %.2f; goodput %.3f, plain %.3f", reached, all, helped.Goodput, plain.Goodput)
					require.Greater(t, helped.Goodput, machine.least)
					require.LessOrEqual(t, reached, 1.5)
					if load == 10 {
						at10 = helped.Goodput
					}
					if load == 50 {
						require.InDelta(t, at10, helped.Goodput, 0.02, "as good as 10x")
					}
				})
			}
		}
	}
}
