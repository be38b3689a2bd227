package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
)

func TestNewPanics(t *testing.T) {
	_, policies, _ := probes(9)
	require.PanicsWithValue(t, "spillway: New: at most 8 policies, got 9", func() { spillway.New(policies...) })
	require.NotPanics(t, func() { spillway.New(policies[:8]...) })
	policies[2] = nil
	require.PanicsWithValue(t, "spillway: New: policy 2 is nil", func() { spillway.New(policies[:8]...) })
}

func TestGateOfNoPoliciesAdmitsEverything(t *testing.T) {
	gate := spillway.New()
	for range 3 {
		p, err := gate.Enter(context.Background(), spillway.Request{})
		require.NoError(t, err)
		p.Done(spillway.Success)
	}
	require.Equal(t, spillway.GateStats{Admitted: 3, Succeeded: 3}, gate.Stats())
}

// A caller who goes on using the slice that it passed to New does not change the gate.
func TestGateIsImmutable(t *testing.T) {
	_, policies, j := probes(2)
	gate := spillway.New(policies...)
	policies[0], policies[1] = policies[1], policies[0]
	_, err := gate.Enter(context.Background(), spillway.Request{Key: "r"})
	require.NoError(t, err)
	require.Equal(t, []string{"0 admits r", "1 admits r"}, j.take())
}

func TestGateAsksInOrderAndEndsInReverse(t *testing.T) {
	for n := range 9 {
		_, policies, j := probes(n)
		gate := spillway.New(policies...)
		p, err := gate.Enter(context.Background(), spillway.Request{Key: "r", Arrived: base})
		require.NoError(t, err)
		var want []string
		for i := range n {
			want = append(want, fmt.Sprintf("%d admits r", i))
		}
		require.Equal(t, want, j.take())
		p.DoneAt(at(7*time.Millisecond), spillway.Failure, 0)
		want = nil
		for i := n - 1; i >= 0; i-- {
			want = append(want, fmt.Sprintf("%d ends r as %d: failure after 7ms", i, 100*i+1))
		}
		require.Equal(t, want, j.take())
	}
}

func TestRefusalGivesBackInReverse(t *testing.T) {
	for refuser := range 8 {
		ps, policies, j := probes(8)
		gate := spillway.New(policies...)
		refusal := &spillway.Rejection{Policy: "probe", Reason: "asked to"}
		ps[refuser].refuse = refusal
		p, err := gate.Enter(context.Background(), spillway.Request{Key: "r"})
		require.Same(t, refusal, err)
		var want []string
		for i := range refuser {
			want = append(want, fmt.Sprintf("%d admits r", i))
		}
		want = append(want, fmt.Sprintf("%d refuses r", refuser))
		for i := refuser - 1; i >= 0; i-- {
			want = append(want, fmt.Sprintf("%d ends r as %d: refused after 0s", i, 100*i+1))
		}
		require.Equal(t, want, j.take())
		p.Done(spillway.Success)
		require.Equal(t, spillway.Permit{}, p)
		require.Empty(t, j.take(), "a refused request is owed no Done")
		require.Equal(t, spillway.GateStats{
			Refused:  1,
			ByReason: []spillway.Refusal{{Index: refuser, Policy: "probe", Reason: "asked to", Count: 1}},
		}, gate.Stats())
	}
}

func TestPoliciesSeeTheRequestAsItIs(t *testing.T) {
	ps, policies, _ := probes(2)
	r := spillway.Request{Key: "tenant", Priority: spillway.Critical + 1, Cost: 17, Arrived: base}
	p, err := spillway.New(policies...).Enter(context.Background(), r)
	require.NoError(t, err)
	require.Equal(t, base, p.Arrived())
	p.DoneAt(at(1), spillway.Success, 0)
	for _, probe := range ps {
		require.Equal(t, []spillway.Request{r}, probe.admits)
		require.Equal(t, []spillway.Request{r}, probe.ends)
	}
}

func TestEnterFillsInTheArrival(t *testing.T) {
	ps, policies, _ := probes(2)
	before := time.Now()
	p, err := spillway.New(policies...).Enter(context.Background(), spillway.Request{})
	after := time.Now()
	require.NoError(t, err)
	require.False(t, p.Arrived().Before(before))
	require.False(t, p.Arrived().After(after))
	require.Equal(t, p.Arrived(), ps[0].admits[0].Arrived)
	require.Equal(t, p.Arrived(), ps[1].admits[0].Arrived)
	require.Contains(t, p.Arrived().String(), " m=", "a monotonic reading, so that a step of the wall clock is no latency")
}

// A gate reads the wall clock now and then only, which must not show in what it fills in.
func TestArrivalsFollowTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := spillway.New()
		for _, pause := range []time.Duration{0, 1, time.Millisecond, 998 * time.Millisecond, time.Second, time.Hour, 0} {
			time.Sleep(pause)
			p, err := gate.Enter(context.Background(), spillway.Request{})
			require.NoError(t, err)
			require.True(t, p.Arrived().Equal(time.Now()))
			require.Equal(t, time.Now().UnixNano(), p.Arrived().UnixNano())
			require.Zero(t, time.Since(p.Arrived()), "on the monotonic clock")
		}
	})
}

// A simulation may begin at any time but the zero Time, which means now.
func TestArrivalsFromAnyEpoch(t *testing.T) {
	for _, epoch := range []time.Time{{}, time.Unix(0, 0), time.Unix(-1, 0)} {
		ps, policies, _ := probes(1)
		gate := spillway.New(policies...)
		for i := 1; i <= 3; i++ {
			arrived := epoch.Add(time.Duration(i) * time.Second)
			p, err := gate.Enter(context.Background(), spillway.Request{Arrived: arrived})
			require.NoError(t, err)
			require.Equal(t, arrived, p.Arrived())
			p.DoneAt(arrived.Add(time.Duration(i)), spillway.Success, 0)
			require.Equal(t, arrived, ps[0].ends[i-1].Arrived)
			require.Equal(t, spillway.Result{Outcome: spillway.Success, Latency: time.Duration(i)}, ps[0].results[i-1])
		}
	}
}

func TestEndedCtxAsksNobody(t *testing.T) {
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("a cause that Enter does not return"))
	late, cancelLate := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancelLate()
	_, policies, j := probes(2)
	gate := spillway.New(policies...)
	for _, ctx := range []context.Context{cancelled, late} {
		p, err := gate.Enter(ctx, spillway.Request{})
		require.Equal(t, ctx.Err(), err)
		require.NotErrorIs(t, err, spillway.ErrRejected)
		require.Equal(t, spillway.Permit{}, p)
	}
	require.Empty(t, j.take())
	require.Equal(t, spillway.GateStats{Cancelled: 2}, gate.Stats())
}

// A ctx that ends in a queue is nobody's refusal, and those before the queue get back what they gave.
func TestCtxThatEndsInAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, _, j := probes(3)
		gate := spillway.New(ps[0], &waiting{ps[1], time.Hour}, ps[2])
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Minute, cancel)
		_, err := gate.Enter(ctx, spillway.Request{Key: "r"})
		require.Equal(t, context.Canceled, err)
		require.Equal(t, []string{"0 admits r", "0 ends r as 1: refused after 0s"}, j.take())
		require.Equal(t, spillway.GateStats{Cancelled: 1}, gate.Stats())
	})
}

// A policy that wraps its Rejection is refused to by policytest, yet the gate counts it right.
func TestWrappedRejectionIsARefusal(t *testing.T) {
	ps, policies, _ := probes(1)
	ps[0].refuse = fmt.Errorf("more words: %w", errFull)
	gate := spillway.New(policies...)
	_, err := gate.Enter(context.Background(), spillway.Request{})
	require.Equal(t, ps[0].refuse, err)
	require.ErrorIs(t, err, spillway.ErrRejected)
	require.Equal(t, []spillway.Refusal{{Policy: "slots", Reason: "full", Count: 1}}, gate.Stats().ByReason)
}

func TestNothingIsAllocated(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not counted under the race detector: it adds its own")
	}
	ctx := context.Background()
	for n := 1; n <= 8; n++ {
		var room []spillway.Policy
		for range n {
			room = append(room, &slots{limit: 2})
		}
		gate := spillway.New(room...)
		for name, r := range map[string]spillway.Request{"own clock": {}, "virtual": {Key: "k", Arrived: base}} {
			require.Zero(t, testing.AllocsPerRun(1000, func() {
				p, err := gate.Enter(ctx, r)
				if err != nil {
					panic(err)
				}
				defer p.Done(spillway.Failure)
				p.Done(spillway.Success)
			}), "%d policies admit, %s", n, name)
			for refuser := range n {
				full := slices.Clone(room)
				full[refuser] = &slots{}
				gate := spillway.New(full...)
				require.Zero(t, testing.AllocsPerRun(1000, func() {
					if _, err := gate.Enter(ctx, r); err == nil {
						panic("admitted")
					}
				}), "%d of %d policies refuses, %s", refuser, n, name)
			}
		}
	}
}

// A policy that may make requests wait costs nothing to those which do not.
func TestNothingIsAllocatedWithoutWaiting(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not counted under the race detector: it adds its own")
	}
	gate := spillway.New(&slots{limit: 2}, queueingSlots{&slots{limit: 2}}, &slots{limit: 2})
	n := testing.AllocsPerRun(1000, func() {
		p, _ := gate.Enter(context.Background(), spillway.Request{})
		p.Done(spillway.Success)
	})
	require.Zero(t, n)
}

type queueingSlots struct{ *slots }

func (queueingSlots) Queues() bool { return true }

// A ripe context has a deadline that has passed, but its timer is late.
type ripe struct{ context.Context }

func (ripe) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// Policies see how much time is left, by the caller or by the context, whatever comes first.
func TestTimeoutOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &timeouts{}
		gate := spillway.New(seen)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for _, c := range []struct {
			ctx         context.Context
			given, want time.Duration
		}{
			{context.Background(), 0, 0}, {context.Background(), time.Minute, time.Minute}, {context.Background(), -5, -5},
			{ctx, 0, time.Second}, {ctx, time.Minute, time.Second}, {ctx, time.Millisecond, time.Millisecond}, {ctx, -5, -5},
		} {
			permit, err := gate.Enter(c.ctx, spillway.Request{Timeout: c.given})
			require.NoError(t, err)
			permit.Done(spillway.Success)
			require.Equal(t, c.want, seen.last)
			require.NoError(t, gate.Peek(c.ctx, spillway.Request{Timeout: c.given}))
			require.Equal(t, c.want, seen.last)
		}
		_, err := gate.Enter(ripe{context.Background()}, spillway.Request{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, spillway.ErrRejected)
		require.Equal(t, int64(1), gate.Stats().Cancelled)
	})
}

// timeouts notes the timeout of the last request.
type timeouts struct{ last time.Duration }

func (p *timeouts) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	p.last = r.Timeout
	return 0, nil
}

func (p *timeouts) Done(r spillway.Request, _ spillway.Ticket, _ spillway.Result) { p.last = r.Timeout }
