package shedder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
)

// A pool answers requests in the order of their admission, slots at a time, each after a time of its own, while the CPU is
// idle. It is driven in steps of one millisecond.
type pool struct {
	*rig
	slots   int
	takes   time.Duration
	waiting []time.Time // arrivals
	working []job
	good    int // answered within 500 ms
	refused int
	due     float64
}

type job struct{ arrived, ends time.Time }

// run offers rate requests a second for d.
func (p *pool) run(d time.Duration, rate float64) {
	for end := p.now.Add(d); p.now.Before(end); {
		p.sleep(time.Millisecond)
		rest := p.working[:0]
		for _, j := range p.working {
			if j.ends.After(p.now) {
				rest = append(rest, j)
				continue
			}
			latency := p.now.Sub(j.arrived)
			p.leave(1, latency, spillway.Success)
			if latency <= 500*time.Millisecond {
				p.good++
			}
		}
		p.working = rest
		for p.due += rate / 1000; p.due >= 1; p.due-- {
			if _, err := p.enter(); err != nil {
				p.refused++
				continue
			}
			p.waiting = append(p.waiting, p.now)
		}
		for len(p.working) < p.slots && len(p.waiting) > 0 {
			p.working = append(p.working, job{p.waiting[0], p.now.Add(p.takes)})
			p.waiting = p.waiting[1:]
		}
	}
}

func (p *pool) reset() { p.good, p.refused = 0, 0 }

func newPool(t *testing.T, slots int, takes time.Duration) *pool {
	p := &pool{rig: newRig(t, shedder.Options{}), slots: slots, takes: takes}
	p.cool()
	return p
}

func TestSaturatedPoolKeepsItsGoodput(t *testing.T) {
	for _, load := range []float64{2, 10} {
		p := newPool(t, 8, 25*time.Millisecond) // 320/s
		p.run(5*time.Second, 160)
		require.Zero(t, p.refused)
		p.run(5*time.Second, load*320)
		require.Equal(t, shedder.Saturated, p.shed.Stats().Reason, "load %v", load)
		p.reset()
		p.run(20*time.Second, load*320)
		require.GreaterOrEqual(t, p.good, int(0.98*320*20), "load %v", load)
		p.run(5*time.Second, 160)
		p.reset()
		p.run(20*time.Second, 160)
		require.Zero(t, p.refused, "load %v: nothing is left of it", load)
		require.False(t, p.shed.Stats().Overloaded)
	}
}

func TestDependencyThatTurnsSlowIsFollowed(t *testing.T) {
	p := newPool(t, 1000, 50*time.Millisecond)
	p.run(5*time.Second, 200)
	p.takes = 500 * time.Millisecond
	p.run(60*time.Second, 200)
	require.Zero(t, p.refused)
	p.takes = 50 * time.Millisecond
	p.run(10*time.Second, 200)
	require.Zero(t, p.refused)
	p.takes = 3 * time.Second // so slow that it looks saturated at first
	p.run(5*time.Second, 200)
	require.Positive(t, p.refused)
	p.run(120*time.Second, 200)
	p.reset()
	p.run(60*time.Second, 200)
	require.Zero(t, p.refused, "opening the limit paid, so it has been opened all the way")
}

// A step far beyond the pool is seen before more are inside than can be answered in time; what turned slow is not taken for
// one, though at least as many pile up.
func TestAFloodOfAPoolIsSeenWithinMoments(t *testing.T) {
	for _, load := range []float64{2, 5, 10} {
		p := &pool{rig: newRig(t, shedder.Options{}), slots: 8, takes: 25 * time.Millisecond}
		p.run(10*time.Second, 160)
		p.run(500*time.Millisecond, 320*load)
		require.Positive(t, p.refused, "load %v", load)
		require.Equal(t, shedder.Saturated, p.shed.Stats().Reason, "load %v", load)
		p.reset()
		p.run(5*time.Second, 320*load)
		require.Greater(t, p.good, int(0.8*5*320), "load %v", load)
	}
	slow := &pool{rig: newRig(t, shedder.Options{}), slots: 1 << 20, takes: 25 * time.Millisecond}
	slow.run(10*time.Second, 300)
	slow.takes = 800 * time.Millisecond
	slow.run(10*time.Second, 300)
	slow.takes = 25 * time.Millisecond
	slow.run(10*time.Second, 300)
	require.Zero(t, slow.refused)
}

// Once the CPU was short and the limit is in force, requests cannot pile up beyond it. That they wait for something else by now
// shows in that the limit stays full and the CPU has time to spare.
func TestAPoolThatFillsUpDuringAnOverloadOfTheCPUIsSeen(t *testing.T) {
	for _, c := range []struct {
		usage float64
		want  shedder.Reason
	}{{0.2, shedder.Saturated}, {0.7, shedder.CoolingDown}} {
		p := newPool(t, 8, 25*time.Millisecond)
		p.run(5*time.Second, 160)
		p.hot()
		p.run(2*time.Second, 3200)
		require.Equal(t, shedder.CPUHigh, p.shed.Stats().Reason)
		p.cpu.usage, p.cpu.smoothed = c.usage, c.usage
		p.run(900*time.Millisecond, 3200)
		require.Equal(t, c.want, p.shed.Stats().Reason, "usage %v", c.usage)
	}
}

// A pool is opened step by step as long as that pays. Memory near its limit, or what else the user says means overload, is no
// reason to open anything.
func TestASignalGoesBeforeASaturation(t *testing.T) {
	var memory gauge
	p := &pool{rig: newRig(t, shedder.Options{Signals: []shedder.Signal{memory.signal("memory", 0.9)}}), slots: 1000, takes: 50 * time.Millisecond}
	p.cool()
	p.run(10*time.Second, 200)
	p.takes = 3 * time.Second // what opens the limit pays
	p.run(5*time.Second, 200)
	require.Equal(t, shedder.Saturated, p.shed.Stats().Reason)
	memory.value = 1
	for range 30 {
		p.run(time.Second, 200)
		s := p.shed.Stats()
		require.Equal(t, shedder.SignalHigh, s.Reason)
		require.Less(t, s.Limit, 60.0)
	}
}
