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

func TestHopelessRequestsCostNothing(t *testing.T) {
	for _, base := range []string{"pool", "step"} {
		for _, load := range []float64{0.5, 2, 5} {
			for _, routes := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s-%v-%v", base, load, routes), func(t *testing.T) {
					s := hurried(base, load, routes)
					off, dry := playJudge(t, s, true)
					on, j := playJudge(t, s, false)
					t.Logf("goodput %.3f, without %.3f; in time %d, of them refused %d; in time with %d; stats %+v", on.Goodput, off.Goodput, dry.inTime, dry.refused, j.inTime, j.Stats())
				})
			}
		}
	}
}

func TestJobs(t *testing.T) {
	for _, base := range []string{"pool", "step"} {
		for _, load := range []float64{1.4, 2, 5} {
			for calls := 1; calls <= 4; calls++ {
				for _, how := range []string{"flat", "key", "raise", "both"} {
					s := sim.Named(base, load)
					s.Classes[0].Calls = calls
					s.Client.Useful, s.Client.Deadline = 4*time.Second, time.Second
					s.Phases[1].For = 30 * time.Second
					if how == "key" || how == "both" {
						s.Classes[0].Keys = 10_000
					}
					if how == "raise" || how == "both" {
						s.Classes[0].Raise = 1
					}
					r := play(t, s, 1, behindShedder)
					t.Logf("%s %.1fx %d calls %s: success %.3f of %.3f: %.3f", base, load, calls, how, r.Classes[0].Served, 1/load, r.Classes[0].Served*load)
				}
			}
		}
	}
}
