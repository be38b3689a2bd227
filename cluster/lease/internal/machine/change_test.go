package machine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tell has nodes from one to another go by a new rate.
func (f *fleet) tell(from, to int, rate float64) {
	c := *f.cfg
	c.Rate = rate
	f.cfg = &c
	for _, n := range f.nodes[from:to] {
		n.SetConfig(f.now, &c)
	}
}

// A smaller limit holds at once when all nodes have been told, a greater one is used up within three intervals, and the shares
// are fair then.
func TestLimitChangesWhileNodesRun(t *testing.T) {
	f := newFleet(proto(), skewed(8, 41000)...)
	f.run(2 * time.Second)
	for _, rate := range []float64{5000, 20000, 2000, 30000} {
		f.tell(0, 8, rate)
		got := f.run(intervals3)
		require.LessOrEqual(t, sum(got)*0.6, rate*0.6+f.cfg.Burst+8)
		f.mostOf(t, "changed")
	}
}

// While nodes differ, all together let through no more than the greatest limit allows, and no less than the smallest.
func TestTheGreatestLimitCounts(t *testing.T) {
	f := newFleet(proto(), skewed(8, 82000)...)
	f.run(2 * time.Second)
	f.tell(0, 4, 10000)
	within(t, 20000, sum(f.run(2*time.Second)), 0.49, 1.01+400.0/20000/2)
	f.tell(4, 8, 10000)
	f.run(intervals3)
	f.mostOf(t, "all know")
	f.tell(0, 1, 30000)
	within(t, 30000, sum(f.run(2*time.Second)), 0.32, 1.01+400.0/20000/2)
}

// A table that lost its memory knows of those only that have asked since. Who goes by its number before it has learnt takes too
// great a share if it is lost once more.
func TestATableThatLearnsLowersNoNumber(t *testing.T) {
	n := NewNode(proto(), "a", 0, rand.New(rand.NewPCG(1, 1)))
	n.SetNodes(0, 3)
	now := time.Duration(0)
	for _, c := range []struct {
		says     int
		learning bool
		want     int
	}{{1, true, 3}, {4, true, 4}, {2, true, 4}, {2, false, 2}} {
		now += 200 * time.Millisecond
		q := n.Begin(now, 10)
		require.True(t, n.Apply(now, &Reply{Seq: q.Seq, Epoch: "e", Grant: 100, Nodes: c.says, Learning: c.learning}))
		require.Equal(t, c.want, n.View().Nodes)
	}
}
