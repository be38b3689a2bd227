package machine

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster/internal/race"
)

// A world is a table and nodes that exchange messages over a bad network, each with a clock of its own that runs a little
// fast or slow.
type world struct {
	rng      *rand.Rand
	cfg      *Config
	now      time.Duration // true time
	skew     float64       // of the clock of the table against true time, in µs
	table    Table
	nodes    []*worldNode
	messages []message
	made     int
	mutate   mutation
	worst    float64
}

type worldNode struct {
	*Node
	id     string
	rate   float64 // of its clock
	demand float64
	paused time.Duration // until
	seen   time.Duration
}

type message struct {
	at    time.Duration
	node  *worldNode
	ask   *Request // or
	reply *Reply
}

// A mutation breaks one rule, to show that the model would see it.
type mutation int

const (
	sound        mutation = iota
	onePhase              // a grant counts as taken back when the table says so
	noLearning            // a new table deals out everything at once
	fromReply             // a lease counts from when its reply came
	anyReply              // a reply to an earlier request passes for one to the last
	endlessClaim          // a node claims what ended long ago
	numMutations
)

func newWorld(seed uint64, m mutation) *world {
	rng := rand.New(rand.NewPCG(seed, 7))
	w := &world{rng: rng, mutate: m, now: time.Hour, cfg: &Config{
		Rate: 1000, Burst: 50, Interval: 200 * time.Millisecond, TTL: 600 * time.Millisecond, Timeout: 250 * time.Millisecond,
		Grace: 5 * time.Second,
	}}
	if rng.IntN(3) == 0 {
		w.cfg.Reclaim = 2 * time.Second
	}
	for range 3 + rng.IntN(14) {
		w.join()
	}
	return w
}

func (w *world) join() {
	w.made++
	n := &worldNode{id: strconv.Itoa(w.made), rate: 0.992 + 0.016*w.rng.Float64(), demand: w.someDemand()}
	n.Node = NewNode(w.cfg, n.id, n.clock(w.now), w.rng)
	n.seen = n.clock(w.now)
	w.nodes = append(w.nodes, n)
}

func (w *world) someDemand() float64 { return []float64{0, 1, 30, 200, 1000, 3000}[w.rng.IntN(6)] }

func (n *worldNode) clock(now time.Duration) time.Duration {
	return time.Duration(float64(now) * n.rate)
}

// serverNow is the clock of the table, which runs right but may be set.
func (w *world) serverNow() float64 { return 1e15 + float64(w.now/time.Microsecond) + w.skew }

func (w *world) step(calm bool) {
	w.now += time.Duration(w.rng.Int64N(int64(20 * time.Millisecond)))
	if !calm && w.rng.IntN(40) == 0 {
		w.disturb()
	}
	w.deliver(calm)
	for _, n := range w.nodes {
		if w.now >= n.paused {
			w.act(n, calm)
		}
	}
}

func (w *world) act(n *worldNode, calm bool) {
	now := n.clock(w.now)
	asked := n.demand * (now - n.seen).Seconds()
	n.seen = now
	n.Observe(now, asked)
	if n.waiting && now-n.asked > w.cfg.Timeout {
		n.Fail(now)
	}
	if now < n.Due() || n.waiting {
		return
	}
	q := n.Begin(now, 0)
	if w.mutate == endlessClaim {
		q.Claim = n.grant
	}
	w.send(message{node: n, ask: q}, calm)
}

// send loses, delays, doubles and reorders.
func (w *world) send(m message, calm bool) {
	m.at = w.now + time.Duration(w.rng.Int64N(int64(10*time.Millisecond)))
	if calm {
		w.messages = append(w.messages, m)
		return
	}
	if w.rng.IntN(6) == 0 {
		return
	}
	if w.rng.IntN(8) == 0 {
		m.at += time.Duration(w.rng.Int64N(int64(2 * time.Second)))
	}
	w.messages = append(w.messages, m)
	if w.rng.IntN(8) == 0 {
		m.at += time.Duration(w.rng.Int64N(int64(time.Second)))
		w.messages = append(w.messages, m)
	}
}

func (w *world) deliver(calm bool) {
	due := slices.Collect(func(yield func(message) bool) {
		for _, m := range w.messages {
			if m.at <= w.now && !yield(m) {
				return
			}
		}
	})
	w.messages = slices.DeleteFunc(w.messages, func(m message) bool { return m.at <= w.now })
	for _, m := range due {
		if m.ask != nil {
			r := w.sync(m.ask)
			w.send(message{node: m.node, reply: &r}, calm)
		} else if w.now >= m.node.paused {
			if w.mutate == fromReply && m.node.waiting {
				m.node.asked = m.node.clock(w.now)
			}
			if w.mutate == anyReply {
				m.reply.Seq = m.node.seq
			}
			m.node.Apply(m.node.clock(w.now), m.reply)
		}
		w.check()
	}
}

func (w *world) sync(q *Request) Reply {
	if w.mutate == noLearning {
		w.table.Marked = 1
		q.Claim = 0
	}
	r := w.table.Sync(w.serverNow(), w.cfg, q)
	if w.mutate == noLearning {
		w.table.Learn = 0
	}
	if e := w.table.Entries[q.Node]; w.mutate == onePhase && e != nil {
		w.table.Used -= max(e.Prev, e.Grant) - e.Grant
		e.Prev = 0
	}
	return r
}

func (w *world) disturb() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	switch w.rng.IntN(10) {
	case 0, 1, 2, 3, 4:
		n.demand = w.someDemand()
	case 5, 6:
		n.paused = w.now + time.Duration(w.rng.Int64N(int64(2*time.Second)))
	case 7: // killed: what it had in use is used no more
		w.nodes = slices.DeleteFunc(w.nodes, func(o *worldNode) bool { return o == n })
		w.join()
	case 8:
		w.send(message{node: n, ask: n.Release(n.clock(w.now))}, false)
	case 9:
		w.disturbTable()
	}
}

func (w *world) disturbTable() {
	switch w.rng.IntN(6) {
	case 0, 1, 2:
		w.table.Flush()
	case 3:
		w.skew -= 3.6e9
	case 4:
		w.skew += 3.6e9
	}
}

// check adds up what nodes may use at this moment by a lease.
func (w *world) check() {
	var sum float64
	for _, n := range w.nodes {
		if t := n.Bucket.Terms(n.clock(w.now)); t.From == FromLease {
			sum += t.Rate
		}
	}
	w.worst = max(w.worst, sum)
}

// fair checks that in a while without faults every node gets its max-min share.
func (w *world) fair(t *testing.T) {
	wants := make([]*Entry, len(w.nodes))
	for i, n := range w.nodes {
		wants[i] = &Entry{Want: min(n.demand, w.cfg.Rate), Weight: 1}
		n.paused = 0
	}
	level, _ := Fill(w.cfg.Rate, float64(len(wants)), slices.Clone(wants))
	for range 600 {
		w.step(true)
		w.check()
	}
	for i, n := range w.nodes {
		rate := n.Bucket.Terms(n.clock(w.now)).Rate
		require.GreaterOrEqual(t, rate, 0.97*min(wants[i].Want, level)-3, "node of demand %v at level %v", n.demand, level)
	}
}

func (w *world) run(steps int) {
	for range steps {
		w.step(false)
		w.check()
	}
}

const modelSeeds = 100

// The sum of what leases allow never exceeds the limit, whatever happens to messages, nodes, clocks and the table.
func TestModelNeverOverCommits(t *testing.T) {
	steps := 1_000_000 / modelSeeds
	if race.Enabled {
		steps /= 10
	}
	for seed := range uint64(modelSeeds) {
		w := newWorld(seed, sound)
		w.run(steps)
		require.LessOrEqual(t, w.worst, w.cfg.Rate*(1+1e-9), "seed %d", seed)
		w.fair(t)
		require.LessOrEqual(t, w.worst, w.cfg.Rate*(1+1e-9), "seed %d", seed)
	}
}

// A model that cannot fail proves nothing: without any one of its rules, the protocol over-commits.
func TestModelSeesEachBrokenRule(t *testing.T) {
	for m := sound + 1; m < numMutations; m++ {
		violated := 0
		for seed := range uint64(modelSeeds) {
			w := newWorld(seed, m)
			w.run(1000)
			if w.worst > w.cfg.Rate*(1+1e-9) {
				violated++
				if violated >= 3 {
					break
				}
			}
		}
		require.NotZero(t, violated, "mutation %d", m)
	}
}
