package shedder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/shedder"
)

// A second in which few ask is chance where fifty requests a second are answered. Some seconds of it are not.
func TestAMomentInWhichFewAskDoesNotEndASaturation(t *testing.T) {
	p := newPool(t, 10, 200*time.Millisecond) // 50/s
	p.run(10*time.Second, 25)
	p.run(10*time.Second, 100)
	require.Equal(t, shedder.Saturated, p.shed.Stats().Reason)
	for range 5 {
		p.run(900*time.Millisecond, 30)
		require.Equal(t, shedder.Saturated, p.shed.Stats().Reason)
		p.run(3*time.Second, 100)
		require.Equal(t, shedder.Saturated, p.shed.Stats().Reason)
	}
	p.run(5*time.Second, 25)
	require.False(t, p.shed.Stats().Overloaded)
}
