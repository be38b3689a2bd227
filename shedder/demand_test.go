package shedder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/shedder"
)

func TestDemand(t *testing.T) {
	s := newPool(t, 10, 50*time.Millisecond) // 200/s
	s.cpu.usage, s.cpu.smoothed = 0.36, 0.45
	s.run(10*second, 100)
	require.InDelta(t, 0.45/0.9, s.look().Demand, 1e-9, "calm: the CPU as a share of its threshold")
	s.run(30*second, 1000)
	require.Positive(t, s.refused)
	require.InDelta(t, 5, s.look().Demand, 0.75, "five times what the pool can carry")
	s.run(30*second, 100)
	require.InDelta(t, 0.5, s.look().Demand, 1e-9, "calm again")

	s = newService(t, shedder.Options{CPUThreshold: shedder.Off}, 50*time.Millisecond)
	s.hot()
	s.run(5*second, 100)
	require.Zero(t, s.look().Demand, "the CPU is ignored")

	s = newPool(t, 1, time.Second)
	s.run(time.Minute, 1000)
	require.LessOrEqual(t, s.look().Demand, 100.0, "next to nothing passes")
	require.Greater(t, s.look().Demand, 20.0)
}
