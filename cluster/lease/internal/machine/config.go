package machine

import "time"

// Config is the part of a limit that all nodes and the table know.
type Config struct {
	Rate     float64       // tokens per second, for all nodes together
	Burst    float64       // tokens that may pass at once, for all nodes together
	Interval time.Duration // from one sync of a node to the next
	TTL      time.Duration // how long a lease lasts
	Reclaim  time.Duration // how much longer than its term the lease of a node that vanished stays reserved
	Timeout  time.Duration // after which a reply is late, and discarded
	Grace    time.Duration // how long Hold keeps the last grant
	Loss     Loss
	Weight   float64 // of this node, when there is not enough for all; 0 counts as 1
	Nodes    int     // how many share the limit until the table reports it
}

// MinTokens is the least number of tokens per interval of a lease: for fewer tokens, one call per request costs no
// more.
const MinTokens = 2

// Small reports whether the limit is too small for any lease.
func (c *Config) Small() bool { return c.Rate*micros(c.Interval)/1e6 < MinTokens }

// Loss is the fallback of a node when its lease ends without a reply.
type Loss uint8

// The fallbacks.
const (
	Hold   Loss = iota // keep the last grant for Config.Grace, then Share
	Share              // take the limit divided by the last known number of nodes
	Open               // admit everything
	Closed             // refuse everything
)

// A Source names the origin of a decision.
type Source uint8

// The sources.
const (
	FromNone   Source = iota // no lease yet
	FromLease                // a lease that is valid
	FromHold                 // an ended lease, by Hold
	FromShare                // an equal share
	FromOpen                 // everything passes
	FromClosed               // nothing passes
)

// Shares of the term and of the rate that both sides use.
const (
	// Safety is the part of a term that a node uses, counted from before it asked. The lease has to end at the node
	// first, and the clocks of a node and of Redis may run at rates that differ by 2 %.
	Safety = 0.98
	// LearningReserve is the part of the rate, and of the burst, that newcomers may take from the pool while a table
	// learns the leases.
	LearningReserve = 0.05
	// Lateness is how much longer than a term a table learns once it knows that leases were lost: a client that failed
	// to connect too often pauses for a second.
	Lateness = time.Second + 100*time.Millisecond
	// Silence is the number of intervals without a message from any node after which the table itself counts as
	// unreachable.
	Silence = 1.5
	// Headroom is the part of the unwanted rate that is leased out all the same, for growing demand.
	Headroom = 0.9
	// SmallTable is the greatest number of nodes for which the level is computed four times in an interval.
	SmallTable = 16
)
