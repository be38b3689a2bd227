package shedder

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

type busyCPU struct{}

func (busyCPU) Sample(now time.Time) stats.CPUSample {
	return stats.CPUSample{Usage: 1, Smoothed: 1, Time: now, Samples: 1, Limit: 1}
}

// The wait in the queue of a Shedder is no latency to the Shedder itself, which would learn that the service is slow.
func TestWaitTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shed := spillway.Must(New(&Options{CPU: busyCPU{}, MinLimit: 1, MaxLimit: 1, MaxQueue: 1, MaxWait: time.Minute}))
		gate := spillway.New(shed)
		first, err := gate.Enter(t.Context(), spillway.Request{})
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { first.Done(spillway.Ignored) })
		second, err := gate.Enter(t.Context(), spillway.Request{})
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(first.Arrived()))
		time.Sleep(25 * time.Millisecond)
		second.Done(spillway.Success)
		n, _, latency := shed.inside.Answers()
		require.EqualValues(t, 1, n)
		require.InDelta(t, 0.025, latency, 1e-6)
	})
}
