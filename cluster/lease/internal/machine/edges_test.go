package machine

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const s = 1e6 // µs

func TestSmallIsLessThanTwoTokensAnInterval(t *testing.T) {
	c := &Config{Rate: 10, Interval: 200 * time.Millisecond}
	require.False(t, c.Small())
	c.Rate = 9.99
	require.True(t, c.Small())
	c.Interval *= 2
	require.False(t, c.Small())
}

// Demand follows a change of more than three standard deviations: upwards at once, downwards to a sixteenth per interval.
func TestDemandIsExact(t *testing.T) {
	var d Demand
	d.Observe(5, 0, time.Second)
	require.Zero(t, d.Rate(), "no time has passed")
	d.Observe(200, 2*time.Second, time.Second)
	require.InDelta(t, 100, d.Rate(), 1e-9, "the first count is all there is to know")
	require.InDelta(t, 60, d.noise(250*time.Millisecond), 1e-9)
	require.InDelta(t, 12, (&Demand{rate: 0.01}).noise(250*time.Millisecond), 1e-9, "of one token at least")

	up := d
	up.Observe(40.1, 250*time.Millisecond, time.Second)
	require.InDelta(t, 160.4, up.Rate(), 1e-9)
	down := d
	down.Observe(9, 250*time.Millisecond, time.Second)
	require.InDelta(t, 36+64*0.5, down.Rate(), 1e-9, "a quarter of an interval")
	same := d
	same.Observe(40, 250*time.Millisecond, time.Second)
	require.InDelta(t, 100+60*(1-0.917004), same.Rate(), 1e-3, "an eighth of a halving")

	for n, want := range map[float64]int{9.9: -1, 10: 0, 25: 0, 40: 0, 40.1: 1} {
		require.Equal(t, want, d.Differs(n, 250*time.Millisecond), n)
	}
	// In a minute chance is less than a tenth: 3 × √6000 / 60 is 3.9.
	for n, want := range map[float64]int{5399: -1, 5400: 0, 6600: 0, 6601: 1} {
		require.Equal(t, want, d.Differs(n, time.Minute), n)
	}
}

// Tokens that nobody has leased gather in the pool, up to the part of the burst that goes with them.
func TestPoolIsExact(t *testing.T) {
	c := &Config{Rate: 100, Burst: 50}
	table := &Table{Meta: Meta{Used: 60}}
	require.InDelta(t, 40, table.poolRate(c, 0), 1e-9)
	require.InDelta(t, 20, table.poolSize(c, 0), 1e-9)
	table.accrue(0.25*s, c)
	require.InDelta(t, 10, table.Free, 1e-9)
	table.accrue(10*s, c)
	require.InDelta(t, 20, table.Free, 1e-9)

	for more, gift := range map[float64]float64{-1: 0, 0: 0, 10: 5, 40: 20, 80: 20} {
		full := *table
		require.InDelta(t, gift, full.gift(c, more), 1e-9, more)
		require.InDelta(t, 20-gift, full.Free, 1e-9)
	}
	learning := *table
	learning.Learn = learning.Last + 1
	require.Zero(t, learning.gift(c, 10), "it does not know yet what is leased")
	learning.Learn--
	require.InDelta(t, 5, learning.gift(c, 10), 1e-9)

	table.Used = 130
	require.Zero(t, table.poolRate(c, table.Last))
	require.InDelta(t, 1, table.poolSize(c, table.Last), 1e-9, "room for one request")
	require.InDelta(t, 0.5, table.poolSize(&Config{Rate: 100, Burst: 0.5}, table.Last), 1e-9)
	require.Zero(t, table.gift(c, 10))
	table.Learn = 20 * s
	require.InDelta(t, 5, table.poolRate(c, table.Learn-1), 1e-9)
	require.InDelta(t, 2.5, table.poolSize(c, table.Learn-1), 1e-9)
	require.Zero(t, table.poolRate(c, table.Learn))

	next := table.Next
	table.accrue(table.Last, c)
	require.InDelta(t, next, table.Next, 0, "the clock stands still")
	table.accrue(5*s, c)
	require.InDelta(t, 5*s, table.Next, 0, "it was set back: now")
}

// Up to SmallTable nodes the level is worked out four times in an interval.
func TestTheLevelIsWorkedOutInTime(t *testing.T) {
	c := &Config{Rate: 100, Interval: 201 * time.Microsecond, TTL: time.Second}
	for nodes, step := range map[int]float64{1: 50, SmallTable: 50, SmallTable + 1: 201} {
		table := &Table{Entries: map[string]*Entry{}}
		for i := range nodes {
			table.Entries[strconv.Itoa(i)] = &Entry{Expiry: 1, Weight: 1, Want: 1}
		}
		table.recompute(0, c, nil)
		require.Equal(t, nodes, table.Nodes)
		require.InDelta(t, step, table.Next, 0, nodes)
		table.recompute(1, c, nil)
		require.Zero(t, table.Nodes, "their leases have ended")
	}
}

// A node asks early if a fifth is missing, or if others want what it does not: not more often than four times in an interval.
func TestNodesAskEarly(t *testing.T) {
	c := &Config{Rate: 1000, Burst: 1000, Interval: 400 * time.Millisecond, TTL: time.Second, Timeout: 100 * time.Millisecond}
	made := func() *Node {
		n := NewNode(c, "n", time.Second, rand.New(rand.NewPCG(1, 1)))
		n.syncedAt, n.due, n.grant = time.Second, 2*time.Second, 100
		n.demand = Demand{rate: 10, seen: true}
		return n
	}
	early := 100 * time.Millisecond
	for _, w := range []struct {
		after  time.Duration
		tokens float64
		early  bool
	}{{early, 8.1, true}, {early, 8, false}, {early - 1, 1000, false}} {
		n := made()
		due := n.Observe(time.Second+w.after, w.tokens)
		require.Equal(t, w.early, n.Due() == time.Second+w.after, w)
		require.Equal(t, min(n.Due(), time.Second+w.after+early), due)
	}
	for want, urgent := range map[float64]bool{50: false, 50.1: true} {
		n := made()
		n.demand.rate, n.want, n.hungry = 100, want, true
		require.Equal(t, urgent, n.urgent(2*time.Second))
		n.hungry = false
		require.False(t, n.urgent(2*time.Second))
	}
	n := NewNode(c, "n", time.Second, rand.New(rand.NewPCG(1, 1)))
	require.Equal(t, time.Second, n.Due(), "a new one asks at once")
	require.Equal(t, time.Second-c.Interval, n.syncedAt)
}

// A node claims its lease if that lasts until the reply has come, and says what it has until it ends.
func TestNodesClaimWhatLasts(t *testing.T) {
	c := &Config{Rate: 1000, Burst: 1000, Interval: 400 * time.Millisecond, TTL: time.Second, Timeout: 100 * time.Millisecond}
	for left, want := range map[time.Duration][2]float64{c.Timeout: {70, 70}, c.Timeout - 1: {70, 0}, 1: {70, 0}, 0: {0, 0}} {
		n := NewNode(c, "n", 0, rand.New(rand.NewPCG(1, 1)))
		n.has, n.expiry = 70, time.Second+left
		q := n.Begin(time.Second, 1)
		require.Equal(t, want, [2]float64{q.Has, q.Claim}, left)
	}
	n := NewNode(c, "n", 0, rand.New(rand.NewPCG(1, 1)))
	n.has, n.expiry, n.leased = 80, time.Hour, true
	half := *c
	half.Rate = 500
	n.SetConfig(time.Second, &half)
	require.InDelta(t, 40, n.has, 1e-9)
	n.SetConfig(time.Second, c)
	require.InDelta(t, 40, n.has, 1e-9, "it grows with the next reply")
}
