package lease

import "time"

// Config is what all nodes and the table know of a limit.
type Config struct {
	Rate     float64       // tokens per second, for all nodes together
	Burst    float64       // tokens that may pass at once, for all nodes together
	Interval time.Duration // from one sync of a node to the next
	Term     time.Duration // how long a lease lasts
	Reclaim  time.Duration // how much longer than its term the lease of a node that vanished stays reserved
	Timeout  time.Duration // after which a reply is late, and discarded
	Grace    time.Duration // how long Hold keeps the last grant
	Loss     Loss
	Weight   float64 // of this node, when there is not enough for all; 0 counts as 1
	Nodes    int     // how many share the limit before the table has told
}

// MinTokens is how many tokens an interval of a lease has at least: for fewer, asking for each costs no more.
const MinTokens = 2

// Small reports whether the limit is too small to be leased by anybody.
func (c *Config) Small() bool { return c.Rate*micros(c.Interval)/1e6 < MinTokens }

// Loss is what a node does when its lease ends and no reply has come.
type Loss uint8

// The ways to go on without the table.
const (
	Hold   Loss = iota // keep the last grant for Config.Grace, then Share
	Share              // take the limit divided by the last known number of nodes
	Open               // admit everything
	Closed             // refuse everything
)

// A Source says by which right a decision was made.
type Source uint8

// The sources.
const (
	FromNone   Source = iota // no lease yet
	FromLease                // a lease that is valid
	FromHold                 // a lease that ended, held
	FromShare                // an equal share
	FromOpen                 // everything passes
	FromClosed               // nothing passes
)

// Shares of the term and of the rate that both sides reckon with.
const (
	// Safety is the part of a term that a node uses, counted from before it asked: the clocks of a node and of Redis may
	// run at rates that differ by 2 %, since the lease has to end at the node first.
	Safety = 0.98
	// LearningReserve is the part of the rate, and of the burst, that newcomers may take from the pool while a table learns who
	// holds what.
	LearningReserve = 0.05
	// Lateness is by how much longer than a term a table learns once it knows that something was lost: a client that could not
	// connect often enough does not try again for a second.
	Lateness = time.Second + 100*time.Millisecond
	// Silence is after how many intervals without a word from anybody it was the table that nobody reached.
	Silence = 1.5
	// Headroom is the part of what nobody wants that is leased out nevertheless, for demand that grows.
	Headroom = 0.9
	// SmallTable is up to how many nodes the level is worked out four times in an interval.
	SmallTable = 16
)
