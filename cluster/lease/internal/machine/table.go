package machine

import (
	"math"
	"strconv"
	"time"
)

// Unlimited is the level of a table in which every node gets its whole demand.
const Unlimited = 1e300

// A Request is what a node sends to the table.
type Request struct {
	Node   string
	Epoch  string  // epoch of the table that sent Ack
	Seq    uint64  // greater with each request of a node
	Ack    uint64  // Seq of the reply in force, or 0
	Want   float64 // tokens per second
	Has    float64 // rate that the node uses at most from now on, by the grant of Ack
	Claim  float64 // Has, if its lease surely lasts until the reply
	Hold   float64 // rate that it keeps using after its lease, or has kept using since
	Weight float64
}

// A Reply is the answer of the table.
type Reply struct {
	Seq      uint64
	Epoch    string
	Grant    float64 // tokens per second, for a term from when the request was sent
	Target   float64 // the grant once other nodes have shrunk
	Gift     float64 // tokens that come with the grant
	Learning bool    // the table may not know of all leases
	Hungry   bool    // others want more than they get
	Nodes    int     // nodes that have a lease or wait for one
	Now      float64 // µs
}

// An Entry is the table's record of a node.
type Entry struct {
	Want, Weight  float64
	Grant, Expiry float64 // by the reply to Seq; Expiry in µs
	Seq           float64
	Prev, PrevExp float64 // rate that the node may use until it acknowledges Seq
	PrevSeq       float64
}

// inUse returns the rate that the node may be using at now.
func (e *Entry) inUse(now float64) float64 {
	var u float64
	if now < e.Expiry {
		u = e.Grant
	}
	if now < e.PrevExp {
		u = max(u, e.Prev)
	}
	return u
}

// A Table is the state of one limit with the operations of the script. The zero Table is that of an empty Redis.
type Table struct {
	Marked  float64 // µs until which new tables learn; 0 if there is no marker
	Made    bool
	Entries map[string]*Entry
	Meta
}

// Meta is the part of a table that is common to all nodes.
type Meta struct {
	Epoch  string
	Began  float64 // µs when the epoch began
	Learn  float64 // µs until which only claims are granted
	Last   float64 // µs of the last call
	Free   float64 // tokens in the pool for nodes without a lease
	Level  float64 // tokens per second and unit of weight that no node exceeds
	Head   float64 // tokens per second and unit of weight on top
	Used   float64 // total rate that the nodes may be using
	Next   float64 // µs from which the level is computed again
	First  float64 // µs of the first end of a lease
	Weight float64
	Nodes  int
}

func micros(d time.Duration) float64 { return float64(d / time.Microsecond) }

// Flush empties the table, as FLUSHALL does.
func (t *Table) Flush() { *t = Table{} }

// Sync renews the lease of a node at now, in µs.
func (t *Table) Sync(now float64, c *Config, q *Request) Reply {
	t.open(now, c, q.Node, q.Epoch != "")
	e := t.Entries[q.Node]
	if e != nil && float64(q.Ack) > e.Seq { // the table is older than one that the node has seen
		t.restart(now, q.Node, now+micros(c.TTL))
		e = nil
	}
	if e != nil && float64(q.Seq) <= e.Seq {
		return t.reply(now, e, q.Weight, 0)
	}
	var use, useExp float64
	if e == nil {
		e = new(Entry)
		t.Entries[q.Node] = e
		t.Nodes++
		if now < t.Learn && q.Epoch != t.Epoch {
			use, useExp = q.Claim, now+micros(c.TTL)
			t.wait(now, c, q)
		}
	} else {
		use, useExp = e.held(q, now)
	}
	e.Want, e.Weight = q.Want, q.Weight
	t.accrue(now, c)
	if now >= t.Next || now >= t.First {
		t.recompute(now, c, e)
	}
	old := e.inUse(now)
	others := t.Used - old
	grant := max(min(t.target(e), c.Rate-others), 0)
	if now < t.Learn {
		grant = min(grant, use)
	}
	if q.Hold > use*1.000001 { // by more than rounding
		use, useExp = q.Hold, now+micros(c.TTL)
	}
	gift := t.gift(c, max(grant, use)-old)
	t.Used = others + max(grant, use)
	t.Free = min(t.Free, t.poolSize(c, now))
	e.Prev, e.PrevExp, e.PrevSeq = use, useExp, float64(q.Ack)
	e.Grant, e.Expiry, e.Seq = grant, now+micros(c.TTL+c.Reclaim), float64(q.Seq)
	t.First = min(t.First, e.Expiry)
	return t.reply(now, e, q.Weight, gift)
}

// held returns the rate that the sender of q uses, and until when.
func (e *Entry) held(q *Request, now float64) (use, exp float64) {
	switch {
	case q.Ack == 0:
		return 0, 0
	case float64(q.Ack) == e.Seq:
		use, exp = e.Grant, e.Expiry
	case float64(q.Ack) == e.PrevSeq:
		use, exp = e.Prev, e.PrevExp
	default:
		use, exp = e.inUse(now), max(e.Expiry, e.PrevExp)
	}
	if now >= exp {
		return 0, 0
	}
	return min(use, q.Has), exp
}

// gift moves tokens from the pool together with a rate that moves from the pool to a node.
func (t *Table) gift(c *Config, more float64) float64 {
	room := c.Rate - t.Used
	if more <= 0 || room <= c.Rate*1e-9 || t.Last < t.Learn {
		return 0
	}
	g := t.Free * min(more/room, 1)
	t.Free -= g
	return g
}

func (t *Table) reply(now float64, e *Entry, weight, gift float64) Reply {
	return Reply{
		Seq: uint64(e.Seq), Epoch: t.Epoch, Grant: e.Grant, Gift: gift, Target: min(e.Want, t.Level*weight),
		Learning: now < t.Learn, Hungry: t.Level < Unlimited, Nodes: t.Nodes, Now: now,
	}
}

// Release forgets a node that has stopped using its lease.
func (t *Table) Release(now float64, c *Config, q *Request) {
	t.open(now, c, q.Node, false)
	t.accrue(now, c)
	if e := t.Entries[q.Node]; e != nil && float64(q.Seq) > e.Seq {
		t.Used = max(t.Used-e.inUse(now), 0)
		delete(t.Entries, q.Node)
		t.Nodes--
	}
}

// Take takes n unleased tokens, or gives back -n. If there are not enough, it returns the µs until there are, or -1 if
// there never will be.
func (t *Table) Take(now float64, c *Config, node string, n float64) (ok bool, left, wait float64) {
	t.open(now, c, node, false)
	t.accrue(now, c)
	size := t.poolSize(c, now)
	if t.Free >= n {
		t.Free = min(t.Free-n, size)
		return true, math.Floor(t.Free), 0
	}
	wait = -1
	if rate := t.poolRate(c, now); rate > c.Rate*1e-9 && n <= size {
		wait = math.Ceil(min((n-t.Free)*1e6/rate, 1e15))
	} else if now < t.Learn {
		wait = t.Learn - now
	}
	return false, math.Floor(t.Free), wait
}

// open makes the table if there is none. It begins a new epoch if no node has called for a term: the leases should have
// ended, but perhaps the clock jumped. The node has had a lease if it knows an epoch.
func (t *Table) open(now float64, c *Config, node string, known bool) {
	term := micros(c.TTL)
	switch {
	case !t.Made:
		learn := now
		if !c.Small() {
			learn = t.mark(now, term, known)
		}
		t.restart(now, node, learn)
		t.Made = true
		t.Last, t.Free = now, t.poolSize(c, now)
	case now-t.Last > term+micros(c.Reclaim) && t.Nodes > 0:
		t.restart(now, node, now+term)
	case now-t.Last > Silence*micros(c.Interval) && t.Nodes > 1:
		t.spare(now, c)
	}
	t.Learn = min(t.Learn, now+term+micros(Lateness)) // the clock may have been set back
}

// spare reserves the grants of all nodes for a term when the table heard from none of them. Then the table itself was
// away, and the first node to come back must not get the leases of the others.
func (t *Table) spare(now float64, c *Config) {
	for _, e := range t.Entries {
		if e.Expiry > t.Last {
			e.Expiry = max(e.Expiry, now+micros(c.TTL))
		}
		if e.PrevExp > t.Last {
			e.PrevExp = max(e.PrevExp, now+micros(c.TTL))
		}
	}
	t.Next = now
}

// mark returns the time until which a table made at now learns. If there is a marker, which outlives the tables, only long
// unused state was lost, and there is nothing to learn.
func (t *Table) mark(now, term float64, known bool) (learn float64) {
	learn = now + term
	switch {
	case t.Marked == 0 || t.Marked > learn:
		t.Marked = learn
	case !known:
		learn = t.Marked
	}
	return learn
}

// wait extends the learning, since a node with an earlier lease has called: other such nodes may call late.
func (t *Table) wait(now float64, c *Config, q *Request) {
	if q.Epoch != "" && q.Hold > 0 {
		t.Learn = max(t.Learn, min(t.Began, now)+micros(c.TTL+Lateness))
	}
}

func (t *Table) restart(now float64, node string, learn float64) {
	t.Entries = map[string]*Entry{}
	t.Epoch = strconv.FormatFloat(now, 'f', 0, 64) + "." + node[:min(len(node), 8)]
	t.Began = now
	t.Learn, t.Level, t.Head, t.Used, t.Next, t.First, t.Weight, t.Nodes = learn, Unlimited, 0, 0, 0, Unlimited, 0, 0
}

func (t *Table) poolRate(c *Config, now float64) float64 {
	if now < t.Learn {
		return c.Rate * LearningReserve
	}
	return max(c.Rate-t.Used, 0)
}

// poolSize returns the greatest number of tokens in the pool: the same part of the burst as the pool has of the rate.
func (t *Table) poolSize(c *Config, now float64) float64 {
	part := (c.Rate - t.Used) / c.Rate
	if now < t.Learn {
		part = LearningReserve
	}
	return max(c.Burst*part, min(1, c.Burst))
}

// accrue adds the unleased tokens since the last call to the pool.
func (t *Table) accrue(now float64, c *Config) {
	if dt := now - t.Last; dt > 0 {
		t.Free = min(t.Free+t.poolRate(c, now)*dt/1e6, t.poolSize(c, now))
	} else if dt < 0 { // the clock was set back, so the end times have to be checked again
		t.Next = now
	}
	t.Last = now
}
