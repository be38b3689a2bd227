package shedder_test

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
)

// busy returns a rig that knows a steady 200 requests per second of 5 ms.
func busy(t *testing.T, o shedder.Options) *rig {
	r := newRig(t, o)
	r.serve(2*time.Second, 20, 5*time.Millisecond)
	return r
}

func TestQueueBeforeTheHandlerIsPaced(t *testing.T) {
	r := busy(t, shedder.Options{})
	r.sched.wait = 300 * time.Millisecond // work that does not yield: nothing in flight, everything before it
	r.sleep(40 * time.Millisecond)
	s := r.look()
	require.True(t, s.Overloaded)
	require.Equal(t, shedder.QueueDelay, s.Reason)
	admitted, refused := 0, 0
	for range 1000 { // a second of 1000/s, each done at once
		r.sleep(time.Millisecond)
		ticket, err := r.enter()
		if err != nil {
			var rej *spillway.Rejection
			require.ErrorAs(t, err, &rej)
			require.Equal(t, shedder.ReasonPace, rej.Reason)
			refused++
			continue
		}
		admitted++
		r.shed.Done(spillway.Request{Arrived: r.now}, ticket, spillway.Result{Outcome: spillway.Success})
	}
	require.InDelta(t, 0.5*200, admitted, 12, "the least pace, while the queue is long")
	require.Equal(t, 1000, admitted+refused)
}

func TestPaceFollowsTheWaits(t *testing.T) {
	r := busy(t, shedder.Options{Window: time.Minute, Buckets: 600})
	paceAt := func(wait time.Duration) float64 {
		r.sched.wait = wait
		for range 20 {
			r.sleep(20 * time.Millisecond)
			r.leave(r.enterMany(40), 0, spillway.Ignored) // more than the pace lets in
			r.look()
		}
		return r.shed.Stats().Pace / 200
	}
	require.True(t, math.IsInf(paceAt(40*time.Millisecond), 1), "waits below half of MaxDelay do not start it")
	require.InDelta(t, 0.5, paceAt(100*time.Millisecond), 0.01)
	require.InDelta(t, 0.9, paceAt(30*time.Millisecond), 0.01, "two targets: a tenth less than one")
	require.InDelta(t, 1.0, paceAt(15*time.Millisecond), 0.01, "at the target: the steady rate")
	require.InDelta(t, 1.1, paceAt(0), 0.01, "no waits: room to find more")
	for range 100 {
		r.sleep(20 * time.Millisecond)
		r.look()
	}
	require.True(t, math.IsInf(r.shed.Stats().Pace, 1), "nothing has waited for a second")
	require.False(t, r.shed.Stats().Overloaded)
}

func TestQuotaPauseIsNobodysFault(t *testing.T) {
	// A quota of 0.4 CPUs stops a process for up to 60 of each 100 ms: such waits say nothing.
	r := busy(t, shedder.Options{})
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	r.cpu.limit, r.cpu.throttled = 0.4, 60*time.Millisecond
	r.sleep(250 * time.Millisecond)
	r.look()
	r.sched.wait = 90 * time.Millisecond
	for range 50 {
		r.sleep(20 * time.Millisecond)
		r.look()
	}
	s := r.shed.Stats()
	require.Equal(t, 60*time.Millisecond, s.QuotaPause)
	require.False(t, s.Overloaded)
	r.sched.wait = 120 * time.Millisecond
	for range 20 {
		r.sleep(20 * time.Millisecond)
		r.look()
	}
	require.Equal(t, shedder.QueueDelay, r.shed.Stats().Reason)
}

func TestBacklogInsideIsSeenWithinATick(t *testing.T) {
	r := busy(t, shedder.Options{})
	r.sched.wait = 20 * time.Millisecond // not much, but somebody waits
	require.Equal(t, 100, r.enterMany(100))
	r.sleep(25 * time.Millisecond)
	_, err := r.enter()
	require.ErrorIs(t, err, spillway.ErrRejected)
	require.Equal(t, shedder.Backlog, r.shed.Stats().Reason)
	require.InDelta(t, 200*0.045, r.shed.Stats().Limit, 0.5)
}

func TestPriorities(t *testing.T) {
	r := newRig(t, shedder.Options{MinLimit: 10})
	r.hot()
	r.look()
	fill := func(p spillway.Priority) (n int) {
		for range 100 {
			if _, err := r.enterAs(p); err == nil {
				n++
			}
		}
		return n
	}
	require.Equal(t, 5, fill(spillway.Sheddable), "half of the limit")
	require.Equal(t, 5, fill(spillway.Normal), "the rest of it")
	require.Equal(t, 5, fill(spillway.Critical), "and half more")
	s := r.shed.Stats()
	require.Equal(t, []int64{95, 95, 95, 285}, []int64{s.RefusedSheddable, s.RefusedNormal, s.RefusedCritical, s.Refused})
}

func TestPaceServesTheCriticalFirst(t *testing.T) {
	r := busy(t, shedder.Options{Window: time.Minute, Buckets: 600})
	r.sched.wait = 300 * time.Millisecond
	r.sleep(40 * time.Millisecond)
	r.look()
	admitted := map[spillway.Priority]int{}
	for i := range 2000 { // 2 s of 1000/s, one in fifty of them critical: 20/s of a pace of 100/s
		r.sleep(time.Millisecond)
		p := spillway.Normal
		if i%50 == 0 {
			p = spillway.Critical
		}
		if ticket, err := r.enterAs(p); err == nil {
			admitted[p]++
			r.shed.Done(spillway.Request{Arrived: r.now}, ticket, spillway.Result{})
		}
	}
	require.Equal(t, 40, admitted[spillway.Critical], "every one")
	require.InDelta(t, 160, admitted[spillway.Normal], 15, "what the critical leave of the pace")
}

func TestRefusedLaterOnGivesThePaceBack(t *testing.T) {
	r := busy(t, shedder.Options{})
	r.sched.wait = 300 * time.Millisecond
	r.sleep(40 * time.Millisecond)
	r.look()
	for range 500 {
		ticket, err := r.enter()
		require.NoError(t, err, "what never ran does not count")
		r.shed.Done(spillway.Request{Arrived: r.now}, ticket, spillway.Result{Outcome: spillway.Refused})
	}
	require.Zero(t, r.shed.Stats().InFlight)
}
