package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMaxMin(t *testing.T) {
	require.Equal(t, []float64{250, 275, 275}, maxMin([]float64{250, 900, 1000}, 800))
	require.Equal(t, []float64{100, 200, 0}, maxMin([]float64{100, 200, 0}, 800))
	require.Equal(t, []float64{375, 375, 250}, maxMin([]float64{1250, 875, 250}, 1000))
}

func TestJain(t *testing.T) {
	require.InDelta(t, 1, jain([]float64{50, 100, 0}, []float64{100, 200, 0}), 1e-12)
	require.InDelta(t, 0.5, jain([]float64{100, 0}, []float64{100, 100}), 1e-12)
	require.Zero(t, jain([]float64{0}, []float64{100}))
}
