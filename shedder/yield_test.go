package shedder

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

type cpuAt float64

func (c cpuAt) Sample(now time.Time) stats.CPUSample {
	return stats.CPUSample{Usage: float64(c), Smoothed: float64(c), Time: now, Samples: 1}
}

type waitOf struct {
	d   time.Duration
	err error
}

func (w *waitOf) Sample(now time.Time) stats.SchedSample {
	return stats.SchedSample{Value: w.d, Time: now, Samples: 1, Err: w.err}
}

// An admitted request yields only while others may be refused behind it and wait for a processor.
func TestYieldsWhileOthersWait(t *testing.T) {
	for _, c := range []struct {
		limit int
		wait  waitOf
		want  bool
	}{
		{10, waitOf{d: 2 * time.Millisecond}, true},
		{10, waitOf{d: 100 * time.Microsecond}, false},
		{10, waitOf{err: stats.ErrNoReading}, true},
		{0, waitOf{d: 2 * time.Millisecond}, false},
	} {
		s := spillway.Must(New(&Options{CPU: cpuAt(0), Sched: &c.wait, MaxLimit: c.limit}))
		r := spillway.Request{Arrived: time.Unix(0, 0)}
		ticket, err := s.Admit(context.Background(), r)
		require.NoError(t, err)
		s.Done(r, ticket, spillway.Result{Outcome: spillway.Success})
		require.Equal(t, c.want, s.yields.Load(), "%+v, limit %v", c, s.Stats().Limit)
	}
}

// Waits that are doubted make requests yield: if they are true, that shows in the latency of requests.
func TestYieldsWhileWaitsAreDoubted(t *testing.T) {
	wait := &waitOf{}
	s := spillway.Must(New(&Options{CPU: cpuAt(0.1), Sched: wait}))
	now := time.Unix(0, 0)
	for i := range 300 {
		if i == 200 {
			wait.d = time.Second
		}
		r := spillway.Request{Arrived: now}
		ticket, err := s.Admit(context.Background(), r)
		require.NoError(t, err)
		s.Done(r, ticket, spillway.Result{Outcome: spillway.Success, Latency: 10 * time.Millisecond})
		now = now.Add(tick)
	}
	require.True(t, s.yields.Load())
	require.ErrorIs(t, s.Stats().SchedErr, ErrImplausible)
}

// A yield is what lets one go first that is ready to run. The scheduler may look elsewhere now and then, so most do.
func TestAYieldLetsAnotherGoFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := spillway.Must(New(&Options{CPU: cpuAt(0), Sched: &waitOf{}}))
	r := spillway.Request{Arrived: time.Unix(0, 0)}
	first := func(yields bool) (went int) {
		for range 100 {
			_, err := s.Admit(context.Background(), r) // a tick now would decide on yields itself
			require.NoError(t, err)
			s.yields.Store(yields)
			var ran atomic.Bool
			done := make(chan struct{})
			go func() { ran.Store(true); close(done) }()
			_, err = s.Admit(context.Background(), r)
			require.NoError(t, err)
			if ran.Load() {
				went++
			}
			<-done
		}
		return went
	}
	require.Greater(t, first(true), 80)
	require.Less(t, first(false), 20)
}
