package shedder_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/shedder"
)

func TestResumeChecksItsValues(t *testing.T) {
	s, err := shedder.New(nil)
	require.NoError(t, err)
	rate, latency := s.Learnt()
	require.Zero(t, rate)
	require.Zero(t, latency)
	require.NoError(t, s.Resume(rate, latency), "nothing was learnt")
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		require.ErrorContains(t, s.Resume(bad, time.Second), "shedder: Resume: rate must be")
	}
	for _, bad := range []time.Duration{-1, 2 * time.Hour} {
		require.ErrorContains(t, s.Resume(1, bad), "shedder: Resume: latency must be")
	}
	require.NoError(t, s.Resume(200, 20*time.Millisecond))
	rate, latency = s.Learnt()
	require.InDelta(t, 200, rate, 1e-9)
	require.Equal(t, 20*time.Millisecond, latency)
}
