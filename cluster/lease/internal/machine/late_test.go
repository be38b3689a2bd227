package machine

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster/internal/race"
)

// A blackout is a world in which it is the table that goes away, for all nodes at once, with its memory or without, and each
// node finds its way back in its own time. Nodes go on with what they had, and newcomers come meanwhile.
type blackout struct {
	rng    *rand.Rand
	cfg    *Config
	now    time.Duration
	table  Table
	nodes  []*blackoutNode
	down   bool
	mute   bool // calls of a table that is away are not refused, but get no answer
	lossy  bool // some replies are lost, of a node not two in a row
	worst  float64
	broken rule
}

// A rule is one that keeps late nodes and others apart.
type rule int

const (
	noRule   rule = iota
	lateness      // a table learns for longer than a term if it has lost something
	holding       // nodes tell what they go on with
	sparing       // a table that was away does not take leases back at once
	retrying      // nodes try again soon
	afterRules
)

type blackoutNode struct {
	*Node
	demand  float64
	contact time.Duration // from when it reaches the table
	reply   *Reply
	replyAt time.Duration
	seen    time.Duration
	lost    bool // the last reply
}

func newBlackout(seed uint64, broken rule) *blackout {
	b := &blackout{rng: rand.New(rand.NewPCG(seed, 3)), now: time.Hour, broken: broken, cfg: &Config{
		Rate: 1000, Burst: 50, Interval: 200 * time.Millisecond, TTL: 600 * time.Millisecond, Timeout: 300 * time.Millisecond,
		Grace: time.Hour,
	}}
	for range 2 + b.rng.IntN(5) {
		b.join()
	}
	return b
}

func (b *blackout) join() {
	n := &blackoutNode{demand: []float64{100, 500, 2000}[b.rng.IntN(3)], seen: b.now}
	n.Node = NewNode(b.cfg, strconv.Itoa(len(b.nodes)), b.now, b.rng)
	b.nodes = append(b.nodes, n)
}

func (b *blackout) upTo(d time.Duration) time.Duration { return time.Duration(b.rng.Int64N(int64(d))) }

func (b *blackout) run(d time.Duration) {
	for end := b.now + d; b.now < end; b.now += b.upTo(2 * time.Millisecond) {
		sum := 0.0
		for _, n := range b.nodes {
			b.act(n)
			if t := n.Bucket.Terms(b.now); t.From == FromLease || t.From == FromHold {
				sum += t.Rate
			}
		}
		b.worst = max(b.worst, sum)
	}
}

func (b *blackout) act(n *blackoutNode) {
	if n.reply != nil && b.now >= n.replyAt && !b.down {
		n.Apply(b.now, n.reply)
		n.reply = nil
	}
	if n.waiting && b.now-n.asked > b.cfg.Timeout {
		n.reply = nil
		b.fail(n)
	}
	n.Observe(b.now, n.demand*(b.now-n.seen).Seconds())
	n.seen = b.now
	if n.waiting || b.now < n.Due() {
		return
	}
	q := n.Begin(b.now, 0)
	if b.broken == holding {
		q.Hold = min(q.Hold, 1e-9)
	}
	if b.down || b.now < n.contact {
		if !b.mute || !b.down { // one that has not found its way back is told so at once
			b.fail(n)
		}
		return
	}
	r := b.sync(q)
	if n.lost = b.lossy && !n.lost && b.rng.IntN(8) == 0; !n.lost {
		n.reply, n.replyAt = &r, b.now+b.upTo(10*time.Millisecond)
	}
}

func (b *blackout) sync(q *Request) Reply {
	before := b.table.Last
	now := 1e15 + float64(b.now/time.Microsecond)
	if b.broken == sparing && now-before <= micros(b.cfg.TTL) {
		b.table.Last = now
	}
	r := b.table.Sync(now, b.cfg, q)
	if b.broken == lateness {
		b.table.Learn = min(b.table.Learn, b.table.Began+micros(b.cfg.TTL))
	}
	return r
}

func (b *blackout) fail(n *blackoutNode) {
	n.Fail(b.now)
	if b.broken == retrying {
		n.due = b.now + 2*b.cfg.Interval
	}
}

// away has the table go away for a while.
func (b *blackout) away() {
	d := b.upTo(time.Second)
	if b.rng.IntN(3) == 0 {
		d = b.upTo(8 * time.Second)
	}
	b.down, b.mute = true, b.rng.IntN(2) == 0
	for _, n := range b.nodes {
		if b.rng.IntN(3) == 0 {
			n.demand = []float64{100, 500, 2000}[b.rng.IntN(3)]
		}
	}
	b.run(d)
	b.down = false
	if b.rng.IntN(2) == 0 {
		b.table.Flush()
	}
	late := time.Duration(0)
	switch {
	case d > 4*time.Second: // clients have stopped to connect
		late = time.Second
	case d > b.cfg.TTL/2: // breakers are open
		late = b.cfg.TTL / 8
	}
	for _, n := range b.nodes[1:] {
		if late > 0 {
			n.contact = b.now + b.upTo(late)
		}
	}
	if len(b.nodes) < 12 {
		b.join()
	}
	b.run(time.Second)
	b.lossy = true
	b.run(2 * time.Second)
	b.lossy = false
	b.run(time.Second)
}

// blackouts returns how many worlds are looked at.
func blackouts() uint64 {
	if race.Enabled {
		return 6
	}
	return 100
}

// Who holds a lease goes on with it when the table is away, and what it holds is given to nobody else when the table comes
// back, with its memory or without, before that node is back too. So the sum of all that is used never exceeds the limit.
func TestLateHoldersKeepWhatTheyHold(t *testing.T) {
	for seed := range blackouts() {
		b := newBlackout(seed, noRule)
		b.run(3 * time.Second)
		for range 6 {
			b.away()
			require.LessOrEqual(t, b.worst, b.cfg.Rate*(1+1e-9), "seed %d", seed)
		}
	}
}

// Without any one of the rules, it does.
func TestBlackoutSeesEachBrokenRule(t *testing.T) {
	for r := noRule + 1; r < afterRules; r++ {
		worst := 0.0
		for seed := uint64(0); seed < 60 && worst < 1100; seed++ {
			b := newBlackout(seed, r)
			b.run(3 * time.Second)
			for range 6 {
				b.away()
			}
			worst = max(worst, b.worst)
		}
		t.Logf("rule %d: %.0f %% of the limit", r, worst/10)
		require.Greater(t, worst, 1100.0, "rule %d", r)
	}
}
