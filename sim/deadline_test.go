package sim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/deadline"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

// A judge is a policy of package deadline that notes who was right: it runs the requests that the policy would refuse, if
// it is dry, and counts those of them that were in time all the same.
type judge struct {
	*deadline.Policy
	dry             bool
	inTime, refused int // requests with a timeout that were in time, and of them those that the policy refused
}

const refusedTicket = 1 << 32

func (j *judge) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	ticket, err := j.Policy.Admit(ctx, r)
	if err != nil && j.dry {
		return refusedTicket, nil
	}
	return ticket, err
}

func (j *judge) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if r.Timeout > 0 && res.Outcome == spillway.Success {
		j.inTime++
		if t == refusedTicket {
			j.refused++
		}
	}
	j.Policy.Done(r, t&^refusedTicket, res)
}

func playJudge(t *testing.T, s sim.Scenario, dry bool) (*sim.Result, *judge) {
	t.Helper()
	figures(t)
	var j *judge
	r, err := sim.Run(s, 1, func(h *sim.Host) (*spillway.Gate, error) {
		shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched()})
		j = &judge{Policy: spillway.Must(deadline.New(nil)), dry: dry}
		return spillway.New(j, shed), err
	})
	require.NoError(t, err)
	return r, j
}

// hurried is a step whose requests take 10, 20, 30, 40 or 50 ms, as one route or as five. Three in ten have 20 ms left.
func hurried(base string, load float64, oneRoute bool) sim.Scenario {
	s := sim.Named(base, load)
	of := s.Classes[0]
	s.Classes = nil
	for takes := 10 * time.Millisecond; takes <= 50*time.Millisecond; takes += 10 * time.Millisecond {
		c := of
		c.Name, c.Route, c.Share = takes.String(), takes.String(), 7
		if oneRoute {
			c.Route = "all"
		}
		c.Stages = []sim.Stage{{CPU: sim.Dist{Fixed: takes}}}
		if len(of.Stages) > 1 {
			c.Stages = []sim.Stage{of.Stages[0], {Wait: sim.Dist{Fixed: takes - 200*time.Microsecond}, During: of.Stages[1].During}}
		}
		s.Classes = append(s.Classes, c)
		c.Name, c.Share, c.Timeout = "hurried "+c.Name, 3, 20*time.Millisecond
		s.Classes = append(s.Classes, c)
	}
	return s
}

// Under overload, requests that cannot be in time take no capacity from the others, and requests that can be in time are
// hardly ever refused.
func TestHopelessRequestsCostNothing(t *testing.T) {
	for _, c := range []struct {
		base     string
		load     float64
		oneRoute bool
		gain     float64 // goodput, as a multiple of that without the policy
	}{
		{"pool", 0.5, true, 1},
		{"pool", 0.5, false, 1},
		{"pool", 2, true, 1.2},
		{"pool", 2, false, 1.2},
		{"pool", 5, true, 1.25},
		{"pool", 5, false, 1.25},
		{"step", 0.5, true, 1},
		{"step", 0.5, false, 1},
		{"step", 2, true, 1}, // a short request gets its share of a CPU at once: one route says too little
		{"step", 2, false, 1.1},
		{"step", 5, true, 1},
		{"step", 5, false, 1.12},
	} {
		t.Run(fmt.Sprintf("%s-%v-%v", c.base, c.load, c.oneRoute), func(t *testing.T) {
			s := hurried(c.base, c.load, c.oneRoute)
			off, dry := playJudge(t, s, true)
			on, j := playJudge(t, s, false)
			t.Logf("goodput %.3f, without %.3f; of %d in time, %d would be refused; in time with it %d; refused %d",
				on.Goodput, off.Goodput, dry.inTime, dry.refused, j.inTime, j.Stats().Refused)
			require.GreaterOrEqual(t, on.Goodput, c.gain*off.Goodput-0.005)
			require.LessOrEqual(t, float64(dry.refused), 0.01*float64(dry.inTime))
			require.GreaterOrEqual(t, float64(j.inTime), 0.97*float64(dry.inTime))
		})
	}
}
