package spillway_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// enter returns a permit for key "r", arrived at base, of a gate of n probes.
func enter(t *testing.T, n int) (*spillway.Permit, []*probe, *spillway.Gate) {
	t.Helper()
	ps, policies, j := probes(n)
	gate := spillway.New(policies...)
	p, err := gate.Enter(context.Background(), spillway.Request{Key: "r", Arrived: base})
	require.NoError(t, err)
	j.take()
	return &p, ps, gate
}

func TestFirstDoneWins(t *testing.T) {
	p, ps, gate := enter(t, 3)
	p.DoneAt(at(time.Second), spillway.Success, 0)
	p.DoneAt(at(2*time.Second), spillway.Failure, 0)
	p.Done(spillway.Dropped)
	for _, probe := range ps {
		require.Equal(t, []spillway.Result{{Outcome: spillway.Success, Latency: time.Second}}, probe.results)
	}
	require.Equal(t, spillway.GateStats{Admitted: 1, Succeeded: 1}, gate.Stats())
}

func TestZeroPermit(t *testing.T) {
	var p spillway.Permit
	p.Done(spillway.Success)
	p.DoneAt(base, spillway.Failure, 0)
	p.Done(spillway.Success)
	require.True(t, p.Arrived().IsZero())
	require.Equal(t, spillway.Permit{}, p)
}

func TestConcurrentDone(t *testing.T) {
	for range 50 {
		p, ps, gate := enter(t, 2)
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range 16 {
			all.Go(func() {
				<-start
				if i%2 == 0 {
					p.Done(spillway.Success)
				} else {
					p.DoneAt(at(1), spillway.Failure, 0)
				}
			})
		}
		close(start)
		all.Wait()
		require.Len(t, ps[0].results, 1)
		require.Len(t, ps[1].results, 1)
		require.Equal(t, ps[0].results, ps[1].results)
		s := gate.Stats()
		require.Equal(t, int64(1), s.Succeeded+s.Failed)
		require.Zero(t, s.InFlight)
	}
}

func TestDeferredDoneCoversPanicAndGoexit(t *testing.T) {
	for name, leave := range map[string]func(){
		"panic":  func() { panic("handler") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			p, ps, gate := enter(t, 2)
			var recovered any
			var all sync.WaitGroup
			all.Go(func() {
				defer func() { recovered = recover() }()
				defer p.Done(spillway.Failure)
				leave()
				p.Done(spillway.Success)
			})
			all.Wait()
			require.Equal(t, name == "panic", recovered == "handler")
			require.Equal(t, spillway.Failure, ps[0].results[0].Outcome)
			require.Equal(t, spillway.Failure, ps[1].results[0].Outcome)
			require.Equal(t, spillway.GateStats{Admitted: 1, Failed: 1}, gate.Stats())
		})
	}
}

func TestDoneBeforeTheArrivalCountsAsTheArrival(t *testing.T) {
	p, ps, _ := enter(t, 1)
	p.DoneAt(at(-time.Second), spillway.Success, 0)
	require.Equal(t, []spillway.Result{{Outcome: spillway.Success}}, ps[0].results)

	q, err := spillway.New(ps[0]).Enter(context.Background(), spillway.Request{Arrived: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	q.Done(spillway.Success)
	require.Equal(t, spillway.Result{Outcome: spillway.Success}, ps[0].results[1])
}

func TestOnlyAGateSaysRefused(t *testing.T) {
	for _, o := range []spillway.Outcome{spillway.Refused, spillway.Refused + 1, 100, 255} {
		p, ps, gate := enter(t, 1)
		p.DoneAt(at(time.Second), o, 0)
		require.Equal(t, []spillway.Result{{Outcome: spillway.Ignored, Latency: time.Second}}, ps[0].results)
		require.Equal(t, spillway.GateStats{Admitted: 1, Ignored: 1}, gate.Stats())
	}
}

func TestDoneMeasuresTheLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, policies, _ := probes(2)
		p, err := spillway.New(policies...).Enter(context.Background(), spillway.Request{})
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		p.Done(spillway.Success)
		for _, probe := range ps {
			require.Equal(t, []spillway.Result{{Outcome: spillway.Success, Latency: 3 * time.Second}}, probe.results)
		}
	})
}

// A wait in a queue is latency to the queue and to those before it, who hold the request meanwhile, and to nobody behind.
func TestWaitsAreNoLatencyToThoseBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, _, _ := probes(5)
		gate := spillway.New(ps[0], &waiting{ps[1], time.Second}, ps[2], &waiting{ps[3], 10 * time.Second}, ps[4])
		start := time.Now()
		p, err := gate.Enter(context.Background(), spillway.Request{Key: "r"})
		require.NoError(t, err)
		time.Sleep(100 * time.Second)
		p.Done(spillway.Success)
		for i, want := range []struct{ arrived, latency time.Duration }{
			{0, 111 * time.Second},
			{0, 111 * time.Second},
			{time.Second, 110 * time.Second},
			{time.Second, 110 * time.Second},
			{11 * time.Second, 100 * time.Second},
		} {
			require.Equal(t, want.latency, ps[i].results[0].Latency, "policy %d", i)
			if i != 1 && i != 3 { // the probe in a waiting is asked after the wait
				require.Equal(t, want.arrived, ps[i].admits[0].Arrived.Sub(start), "policy %d", i)
			}
			require.Equal(t, ps[i].admits, ps[i].ends, "policy %d: Done gets the same Request as Admit", i)
		}
		require.True(t, p.Arrived().Equal(start))
	})
}

// The same where the first policy is the queue.
func TestAWaitInTheFirstPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, _, _ := probes(3)
		gate := spillway.New(&waiting{ps[0], time.Second}, ps[1], ps[2])
		start := time.Now()
		p, err := gate.Enter(context.Background(), spillway.Request{})
		require.NoError(t, err)
		time.Sleep(100 * time.Second)
		p.Done(spillway.Success)
		require.Equal(t, 101*time.Second, ps[0].results[0].Latency)
		for _, behind := range ps[1:] {
			require.Equal(t, time.Second, behind.admits[0].Arrived.Sub(start))
			require.Equal(t, 100*time.Second, behind.results[0].Latency)
		}
	})
}

func TestDoneAtAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, _, _ := probes(3)
		gate := spillway.New(ps[0], &waiting{ps[1], time.Second}, ps[2])
		start := time.Now()
		p, err := gate.Enter(context.Background(), spillway.Request{})
		require.NoError(t, err)
		p.DoneAt(start.Add(500*time.Millisecond), spillway.Success, 0) // before it reached policy 2
		require.Equal(t, 500*time.Millisecond, ps[0].results[0].Latency)
		require.Zero(t, ps[2].results[0].Latency)
	})
}

func TestRefusedBehindAQueueGivesBackTheSameRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, _, _ := probes(4)
		ps[3].refuse = errFull
		gate := spillway.New(ps[0], &waiting{ps[1], time.Second}, ps[2], ps[3])
		_, err := gate.Enter(context.Background(), spillway.Request{Key: "r"})
		require.Same(t, errFull, err)
		for _, p := range ps[:3] {
			require.Equal(t, p.admits, p.ends)
			require.Equal(t, []spillway.Result{{Outcome: spillway.Refused}}, p.results)
		}
		require.Equal(t, time.Second, ps[2].ends[0].Arrived.Sub(ps[0].ends[0].Arrived))
	})
}

// Virtual time is not mixed with the clock: where the caller says when a request arrived, a wait changes nothing.
func TestWaitsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, arrived := range []time.Time{base, time.Unix(0, 0)} { // after and before the clock of the bubble
			ps, _, _ := probes(3)
			gate := spillway.New(ps[0], &waiting{ps[1], time.Second}, ps[2])
			p, err := gate.Enter(context.Background(), spillway.Request{Arrived: arrived})
			require.NoError(t, err)
			p.DoneAt(arrived.Add(5*time.Second), spillway.Success, 0)
			for _, probe := range ps {
				require.Equal(t, arrived, probe.admits[0].Arrived)
				require.Equal(t, arrived, probe.ends[0].Arrived)
				require.Equal(t, 5*time.Second, probe.results[0].Latency)
			}
		}
	})
}
