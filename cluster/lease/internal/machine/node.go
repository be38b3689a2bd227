package machine

import (
	"math/rand/v2"
	"time"
)

// A Node is the state of a limit in one process. One goroutine at a time calls its methods; any goroutine may call
// those of its Bucket. Times are monotonic, from any start.
type Node struct {
	// Bucket decides while the node has a lease, and after one has ended without a reply.
	Bucket Bucket
	// Alone decides for a node without a lease that gets no answer.
	Alone  Bucket
	cfg    *Config
	id     string
	demand Demand
	rng    *rand.Rand

	epoch    string
	seq, ack uint64
	grant    float64       // by the reply to ack
	has      float64       // the most of it that the node uses
	expiry   time.Duration // when the grant ends
	want     float64
	nodes    int
	hungry   bool // a node gets less than it wants
	eager    bool // another sync soon brings more to this node or to others
	seeking  bool // it asks for a lease
	leased   bool // it has had a grant, or the reply that there is none for it

	sampled, syncedAt, due time.Duration
	count                  float64 // requested tokens since sampled
	failures               int
	asked                  time.Duration // when the request in flight was sent
	waiting                bool
}

// NewNode returns a node without a lease.
func NewNode(c *Config, id string, now time.Duration, rng *rand.Rand) *Node {
	n := &Node{cfg: c, id: id, rng: rng, sampled: now, syncedAt: now - c.Interval, due: now, nodes: max(c.Nodes, 1)}
	n.Bucket.terms.Store(nothing())
	n.Alone.set(now, n.without(), c.Burst/float64(n.nodes))
	return n
}

// nothing returns the terms of a node that has no lease.
func nothing() *Terms { return &Terms{Until: Forever} }

// SetNodes sets the number of nodes, as learnt elsewhere.
func (n *Node) SetNodes(now time.Duration, nodes int) {
	if nodes = max(nodes, 1); nodes != n.nodes {
		n.nodes = nodes
		n.Alone.set(now, n.without(), 0)
	}
}

// SetConfig changes the figures of the node. Its usable rate shrinks with the limit at once, and grows with the next
// reply.
func (n *Node) SetConfig(now time.Duration, c *Config) {
	part := min(c.Rate/n.cfg.Rate, 1)
	n.cfg, n.due = c, min(n.due, now)
	n.Alone.set(now, n.without(), 0)
	if n.leased {
		n.has *= part
		n.Bucket.set(now, n.lease(n.has, n.expiry), 0)
	}
}

// without returns the terms of a node that has no lease and nothing to hold.
func (n *Node) without() *Terms {
	switch n.cfg.Loss {
	case Open:
		return newTerms(n.cfg, 0, Forever, FromOpen, nil)
	case Closed:
		return newTerms(n.cfg, 0, Forever, FromClosed, nil)
	default:
		return newTerms(n.cfg, n.cfg.Rate/float64(n.nodes), Forever, FromShare, nil)
	}
}

// lease returns the terms of a lease, and of the time after it.
func (n *Node) lease(rate float64, until time.Duration) *Terms {
	next := n.without()
	if n.cfg.Loss == Hold {
		next = newTerms(n.cfg, rate, until+n.cfg.Grace, FromHold, next)
	}
	return newTerms(n.cfg, rate, until, FromLease, next)
}

// early is the least time between two syncs.
func (n *Node) early() time.Duration {
	return min(max(n.cfg.Interval/4, 50*time.Millisecond), n.cfg.Interval)
}

// Observe adds the tokens requested since the last call of Observe or Begin, and returns when to call it again. It
// schedules an early sync if the demand differs from that of the lease.
func (n *Node) Observe(now time.Duration, tokens float64) time.Duration {
	n.count += tokens
	if now < n.due && !n.waiting && n.failures == 0 && now-n.syncedAt >= n.early() && n.urgent(now) {
		n.due = now
	}
	return min(n.due, now+n.early())
}

func (n *Node) urgent(now time.Duration) bool {
	if n.eager {
		return true
	}
	switch n.demand.Differs(n.count, now-n.sampled) {
	case 1:
		return n.count > 0.8*n.grant*(now-n.sampled).Seconds()
	case -1:
		return n.hungry && n.want > n.demand.Rate()/2
	}
	return false
}

// Due returns when the next sync is due.
func (n *Node) Due() time.Duration { return n.due }

// Begin returns the request to send at now. The tokens requested since the last Observe are added.
func (n *Node) Begin(now time.Duration, tokens float64) *Request {
	n.count += tokens
	if dt := now - n.sampled; dt > 0 {
		n.demand.Observe(n.count, dt, n.cfg.Interval)
		n.count, n.sampled = 0, now
	}
	n.want = min(n.demand.Rate(), n.cfg.Rate)
	n.shrink(now)
	n.nextSeq(now)
	n.syncedAt, n.asked, n.waiting, n.eager = now, now, true, false
	n.due = now + n.jitter(n.cfg.Interval)
	q := &Request{Node: n.id, Epoch: n.epoch, Seq: n.seq, Ack: n.ack, Want: n.want, Has: n.has, Weight: n.weight()}
	if now >= n.expiry {
		q.Has = 0
	} else if n.expiry-now >= n.cfg.Timeout {
		q.Claim = n.has
	}
	if t := n.Bucket.Terms(now); t.From == FromHold || t.From == FromLease && n.cfg.Loss == Hold {
		q.Hold = t.Rate
	}
	return q
}

// shrink gives up the part of the lease that the node does not want while others want more. It does so before the report, so
// that one message, not two, moves that part to another node.
func (n *Node) shrink(now time.Duration) {
	if keep := n.want * 1.02; n.hungry && now < n.expiry && keep < n.has {
		n.has = keep
		n.Bucket.set(now, n.lease(n.has, n.expiry), 0)
	}
}

// jitter returns d, more or less by up to a tenth.
func (n *Node) jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*n.rng.Float64()))
}

// Apply puts the reply that arrived at now in force, and reports whether it did. It discards a late reply, and a reply
// to any request but the last.
func (n *Node) Apply(now time.Duration, r *Reply) bool {
	if !n.waiting || r.Seq != n.seq {
		return false
	}
	if now-n.asked > n.cfg.Timeout {
		n.Fail(now)
		return false
	}
	n.waiting, n.failures = false, 0
	if !r.Learning || r.Nodes > n.nodes { // a table that is still learning does not know all nodes
		n.SetNodes(now, r.Nodes)
	}
	n.hungry = r.Hungry
	live := now < n.expiry
	before := n.has
	n.epoch, n.ack, n.grant, n.has = r.Epoch, n.seq, r.Grant, r.Grant
	if r.Learning && r.Grant == 0 && !live {
		n.expiry = 0
		return true // the table does not know yet: continue as without it
	}
	n.expiry = n.asked + time.Duration(Safety*float64(n.cfg.TTL))
	n.leased = true
	n.Bucket.set(now, n.lease(r.Grant, n.expiry), r.Gift)
	n.eager = r.Hungry && live && r.Grant < 0.95*before || // others wait for this node to acknowledge
		!r.Learning && r.Grant < 0.98*r.Target // this node waits for others
	return true
}

// Fail records that no reply has come. Each failure delays the next attempt more. The first delays are short, so that a
// successful attempt still finds the lease valid. The longest delay is short enough that a table that has lost its data
// hears from the node within a term.
func (n *Node) Fail(now time.Duration) {
	n.waiting = false
	n.failures++
	pause := min(n.cfg.Interval/4<<min(n.failures-1, 4), n.cfg.TTL/4)
	n.due = now + n.jitter(pause)
}

// nextSeq increments the number, and keeps it at least at the µs, so that a node that is made again with the same id continues
// its numbers.
func (n *Node) nextSeq(now time.Duration) { n.seq = max(n.seq+1, uint64(max(now, 0)/time.Microsecond)) }

// Skip forgets the demand up to now: Redis decided about it.
func (n *Node) Skip(now time.Duration) { n.sampled, n.count = now, 0 }

// Seek lets a node without a lease ask for one from now on. The tokens were requested since the last Skip.
func (n *Node) Seek(now time.Duration, tokens float64) {
	n.seeking, n.due, n.failures = true, now, 0
	n.count += tokens
}

// Seeking reports whether the node asks for a lease, or has one.
func (n *Node) Seeking() bool { return n.seeking }

// Release stops the use of the lease, and returns the request that reports it to the table.
func (n *Node) Release(now time.Duration) *Request {
	n.nextSeq(now)
	n.waiting, n.leased, n.seeking = false, false, false
	n.grant, n.has, n.ack, n.expiry = 0, 0, 0, 0
	n.Bucket.set(now, nothing(), 0)
	q := &Request{Node: n.id, Epoch: n.epoch, Seq: n.seq, Weight: n.weight()}
	n.epoch = "" // a node that has released its lease has nothing to lose
	return q
}

func (n *Node) weight() float64 {
	if n.cfg.Weight > 0 {
		return n.cfg.Weight
	}
	return 1
}

// Leased reports whether the node decides itself: it has or had a lease, or knows that there is none for it.
func (n *Node) Leased() bool { return n.leased }

// View is a snapshot of a node.
type View struct {
	Epoch       string
	Grant, Want float64 // tokens per second
	Nodes       int
	Hungry      bool
	Failures    int
	SyncedAt    time.Duration // when the request of the reply in force was sent
}

// View returns a snapshot.
func (n *Node) View() View {
	return View{
		Epoch: n.epoch, Grant: n.grant, Want: n.want, Nodes: n.nodes, Hungry: n.hungry, Failures: n.failures, SyncedAt: n.asked,
	}
}
