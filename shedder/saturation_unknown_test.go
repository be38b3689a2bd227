package shedder_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/shedder"
)

// While all wait for something that is stuck, the window runs empty, and nothing is known of the rate of which the service
// is capable. That is neither reason to let everybody in nor to let nobody in for ever.
func TestASaturatedPoolThatGetsStuckIsOpenAgainOnceItHeals(t *testing.T) {
	for _, load := range []float64{0.3, 2} {
		for _, stuck := range []time.Duration{6 * time.Second, 9 * time.Second, time.Minute} {
			p := newPool(t, 8, 25*time.Millisecond) // 320/s
			p.run(5*time.Second, 160)
			p.run(5*time.Second, load*320)
			p.takes = time.Hour
			for range int(stuck / time.Second) {
				p.run(time.Second, load*320)
				limit := p.shed.Stats().Limit
				require.False(t, math.IsNaN(limit), "load %v, stuck for %v", load, stuck)
			}
			p.takes = 25 * time.Millisecond
			for i := range p.working {
				p.working[i].ends = p.now
			}
			p.run(10*time.Second, 160)
			p.reset()
			p.run(10*time.Second, 160)
			require.Zero(t, p.refused, "load %v, stuck for %v", load, stuck)
			require.GreaterOrEqual(t, p.good, 1590, "load %v, stuck for %v", load, stuck)
		}
	}
}

// A window of another length starts empty. A limit that is in force stays what it is meanwhile.
func TestTuningTheWindowDoesNotOpenASaturatedPool(t *testing.T) {
	p := newPool(t, 8, 25*time.Millisecond)
	p.run(5*time.Second, 160)
	p.run(5*time.Second, 640)
	require.Equal(t, shedder.Saturated, p.shed.Stats().Reason)
	before := p.shed.Stats().Limit
	for range 5 {
		o := p.shed.Options()
		o.Window += time.Second
		require.NoError(t, p.shed.Tune(o))
		p.reset()
		for range 20 {
			p.run(100*time.Millisecond, 640)
			require.LessOrEqual(t, p.shed.Stats().Limit, 5*before)
		}
		require.GreaterOrEqual(t, p.good, 620)
	}
	p.run(3*time.Second, 160)
	p.reset()
	p.run(10*time.Second, 160)
	require.Zero(t, p.refused)
}
