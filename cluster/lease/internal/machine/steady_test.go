package machine

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster/internal/race"
)

// A fleet is nodes under load in virtual time: requests come one by one, and pass or not.
type fleet struct {
	cfg    *Config
	rng    *rand.Rand
	now    time.Duration
	table  Table
	rtt    time.Duration
	stall  func() time.Duration // how late a node's requests are let loose, as by a busy scheduler
	nodes  []*fleetNode
	down   bool
	offset time.Duration // of the clock of the table
}

type fleetNode struct {
	*Node
	id       string
	demand   float64
	poisson  bool
	next     time.Duration // request
	look     time.Duration // at the syncs
	reply    *Reply
	replyAt  time.Duration
	offered  float64
	admitted float64
	stalled  time.Duration // until
	dead     bool
}

func newFleet(c *Config, demands ...float64) *fleet {
	f := &fleet{cfg: c, rng: rand.New(rand.NewPCG(1, 2)), now: time.Hour, rtt: time.Millisecond}
	f.table.Marked = 1
	for _, d := range demands {
		f.join(d)
	}
	return f
}

func (f *fleet) join(demand float64) *fleetNode {
	n := &fleetNode{id: strconv.Itoa(len(f.nodes)), demand: demand, next: f.now, look: f.now}
	n.Node = NewNode(f.cfg, n.id, f.now, f.rng)
	f.nodes = append(f.nodes, n)
	return n
}

// run serves d and returns what was admitted by node, per second.
func (f *fleet) run(d time.Duration) []float64 {
	slice := 100 * time.Microsecond
	if race.Enabled {
		slice *= 5
	}
	before := make([]float64, len(f.nodes))
	for i, n := range f.nodes {
		before[i] = n.admitted
	}
	for end := f.now + d; f.now < end; f.now += slice {
		for _, n := range f.nodes {
			if n.dead {
				continue
			}
			if f.stall != nil && f.now >= n.stalled && f.rng.IntN(int(50*time.Millisecond/slice)) == 0 {
				n.stalled = f.now + f.stall()
			}
			if f.now >= n.stalled {
				f.serve(n)
			}
			f.sync(n)
		}
	}
	for i, n := range f.nodes {
		before[i] = (n.admitted - before[i]) / d.Seconds()
	}
	return before
}

// serve lets loose what has come since, now: a stalled node sees it all at once.
func (f *fleet) serve(n *fleetNode) {
	for n.next <= f.now && n.demand > 0 {
		gap := 1 / n.demand
		if n.poisson {
			gap *= f.rng.ExpFloat64()
		}
		n.next += time.Duration(gap * 1e9)
		n.offered++
		if ok, _, from := n.Bucket.Take(f.now, 1); ok && from != FromNone {
			n.admitted++
		}
	}
	if n.demand == 0 {
		n.next = f.now
	}
}

func (f *fleet) sync(n *fleetNode) {
	if n.reply != nil && f.now >= n.replyAt {
		n.Apply(f.now, n.reply)
		n.reply = nil
	}
	if f.now < n.look || n.reply != nil {
		return
	}
	n.look = n.Observe(f.now, n.offered)
	n.offered = 0
	if f.now < n.Due() {
		return
	}
	q := n.Begin(f.now, 0)
	n.look = f.now + n.early()
	if f.down {
		n.Fail(f.now)
		return
	}
	r := f.table.Sync(float64((f.now+24*time.Hour+f.offset)/time.Microsecond), f.cfg, q)
	n.reply, n.replyAt = &r, f.now+f.rtt
}

// shares returns what each node should get.
func (f *fleet) shares() []float64 {
	all := make([]*Entry, 0, len(f.nodes))
	for _, n := range f.nodes {
		if !n.dead {
			all = append(all, &Entry{Want: min(n.demand, f.cfg.Rate), Weight: 1})
		}
	}
	level, _ := Fill(f.cfg.Rate, float64(len(all)), all)
	out := make([]float64, len(f.nodes))
	for i, n := range f.nodes {
		if !n.dead {
			out[i] = min(n.demand, level)
		}
	}
	return out
}

func sum(xs []float64) (s float64) {
	for _, x := range xs {
		s += x
	}
	return s
}

// jain returns how evenly got is what should be: 1 if all nodes get the same part of their shares.
func jain(got, should []float64) float64 {
	var s, sq, n float64
	for i := range got {
		if should[i] > 0 {
			x := got[i] / should[i]
			s, sq, n = s+x, sq+x*x, n+1
		}
	}
	return s * s / (n * sq)
}

func skewed(n int, total float64) []float64 {
	d := make([]float64, n)
	var s float64
	for i := range d {
		d[i] = float64(int64(1) << (5 * i / max(n-1, 1)))
		s += d[i]
	}
	for i := range d {
		d[i] *= total / s
	}
	return d
}

func proto() *Config {
	return &Config{
		Rate: 20000, Burst: 400, Interval: 200 * time.Millisecond, TTL: 600 * time.Millisecond, Timeout: 100 * time.Millisecond,
		Grace: 10 * time.Second,
	}
}

// within fails unless got is from low to high parts of want.
func within(t *testing.T, want, got, low, high float64, what ...any) {
	t.Helper()
	require.GreaterOrEqual(t, got, want*low, what...)
	require.LessOrEqual(t, got, want*high, what...)
}

// Twice the limit is offered, unevenly: the limit is used up, and every node gets its max-min share.
func TestSteadyShares(t *testing.T) {
	for _, nodes := range []int{2, 8, 32} {
		for _, poisson := range []bool{false, true} {
			c := proto()
			f := newFleet(c, skewed(nodes, 2*c.Rate)...)
			for _, n := range f.nodes {
				n.poisson = poisson
			}
			f.run(time.Second)
			got := f.run(2 * time.Second)
			low, even := 0.998, 0.999
			if poisson { // a burst of 20 ms does not carry what chance makes of small rates
				low, even = 0.96, 0.99
			}
			within(t, c.Rate, sum(got), low, 1.001+c.Burst/c.Rate/2, "%d nodes, poisson %v", nodes, poisson)
			require.Greater(t, jain(got, f.shares()), even)
		}
	}
}

// A scheduler that lets requests loose in heaps costs what does not fit into the burst. It is no fault of the leases: with
// a burst that covers the stalls, nothing is lost.
func TestStallsCostWhatTheBurstDoesNotCarry(t *testing.T) {
	loss := func(burst float64) float64 {
		c := proto()
		c.Burst = burst
		f := newFleet(c, skewed(8, 41000)...)
		f.stall = func() time.Duration { return time.Duration(f.rng.ExpFloat64() * float64(10*time.Millisecond)) }
		f.run(time.Second)
		return 1 - sum(f.run(2*time.Second))/c.Rate
	}
	require.Greater(t, loss(400), 0.02)    // 20 ms
	require.Less(t, loss(4000), 0.015)     // 200 ms
	require.Less(t, loss(4000), loss(400)) // and the cause is the burst
}

const intervals3 = 600 * time.Millisecond

// mostOf checks that each node gets 95 % of its max-min share from now on.
func (f *fleet) mostOf(t *testing.T, what string) {
	t.Helper()
	got := f.run(500 * time.Millisecond)
	for i, should := range f.shares() {
		require.GreaterOrEqual(t, got[i], 0.95*should, "%s: node %d", what, i)
	}
}

func TestSharesFollowWithinThreeIntervals(t *testing.T) {
	f := newFleet(proto(), skewed(8, 41000)...)
	f.run(2 * time.Second)
	demands := skewed(8, 41000)
	for i, n := range f.nodes {
		n.demand = demands[7-i]
		n.next = f.now
	}
	f.run(intervals3)
	f.mostOf(t, "swap")
	f.join(10000)
	f.run(intervals3)
	f.mostOf(t, "join")
	f.nodes[0].demand = 0
	f.run(intervals3)
	f.mostOf(t, "leave")
}

func TestShareOfADeadNodeIsReused(t *testing.T) {
	c := proto()
	f := newFleet(c, 10000, 10000, 10000, 10000)
	f.run(2 * time.Second)
	f.nodes[2].dead = true
	f.run(c.TTL + c.Interval)
	got := f.run(500 * time.Millisecond)
	within(t, c.Rate, sum(got), 0.97, 1.03)
}

// What the table has lost, the nodes claim, and nothing is to be seen from outside.
func TestLossOfState(t *testing.T) {
	c := proto()
	f := newFleet(c, skewed(8, 41000)...)
	f.run(2 * time.Second)
	f.table.Flush()
	within(t, c.Rate, sum(f.run(time.Second)), 0.97, 1.03)
	f.run(400 * time.Millisecond)
	f.mostOf(t, "flush")
}

// Without the table for long, nodes hold what they had.
func TestOutage(t *testing.T) {
	for loss, low := range map[Loss]float64{Hold: 0.98, Share: 0.55, Closed: 0} {
		c := proto()
		c.Loss = loss
		f := newFleet(c, skewed(8, 41000)...)
		f.run(2 * time.Second)
		f.down = true
		f.run(c.TTL)
		got := f.run(2 * time.Second)
		within(t, c.Rate, sum(got), low, 1.01, "loss %v", loss)
		if loss == Closed {
			require.Zero(t, sum(got))
		}
		f.down = false
		got = f.run(time.Second)
		within(t, c.Rate, sum(got), low*0.99, 1.01+c.Burst/c.Rate, "back, loss %v", loss)
		f.run(time.Second)
		f.mostOf(t, "back")
	}
	c := proto()
	c.Loss = Open
	f := newFleet(c, 1000, 20000)
	f.run(time.Second)
	f.down = true
	f.run(c.TTL)
	require.InDelta(t, 21000, sum(f.run(time.Second)), 100)
}

// When Hold's grace is over, it is Share.
func TestHoldEndsInDivide(t *testing.T) {
	c := proto()
	c.Grace = time.Second
	f := newFleet(c, 1000, 40000)
	f.run(2 * time.Second)
	f.down = true
	f.run(c.TTL + time.Second)
	got := f.run(time.Second)
	require.InDelta(t, 10000, got[1], 500)
	require.Equal(t, FromShare, f.nodes[1].Bucket.Terms(f.now).From)
}

// Clocks that differ from each other and from that of the table change no decision.
func TestClocksNeedNotAgree(t *testing.T) {
	run := func(offset time.Duration) []float64 {
		f := newFleet(proto(), skewed(4, 41000)...)
		f.offset = offset
		return f.run(2 * time.Second)
	}
	want := run(0)
	require.Equal(t, want, run(time.Hour))
	require.Equal(t, want, run(-time.Hour))
}

// A newcomer waits until others have let go, and gets its share then; one that comes to a limit with room starts at once.
func TestNewcomer(t *testing.T) {
	f := newFleet(proto(), 1000)
	f.run(time.Second)
	n := f.join(1500)
	f.run(250 * time.Millisecond)
	before := n.admitted
	f.run(500 * time.Millisecond)
	require.InDelta(t, 750, n.admitted-before, 40)
}
