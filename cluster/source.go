package cluster

import "fmt"

// OnLoss decides while Redis does not answer. The zero OnLoss is the default of the type that uses it.
type OnLoss uint8

// The choices.
const (
	// HoldLease keeps the last grant for a while, and then acts as Share. It is for leases; a [Limit] has none.
	HoldLease OnLoss = iota + 1
	// Share lets each process use its part of the limit: one of Nodes, at least one token. All together do not exceed
	// the limit, and they admit less if the load is uneven.
	Share
	// Open admits every request: an answer matters more than the limit.
	Open
	// Closed refuses every request: the limit matters more than an answer.
	Closed
)

// String returns "hold", "share", "open" or "closed".
func (o OnLoss) String() string {
	if o >= HoldLease && o <= Closed {
		return [...]string{"hold", "share", "open", "closed"}[o-HoldLease]
	}
	return fmt.Sprintf("OnLoss(%d)", uint8(o))
}

// A Source names the origin of an answer.
type Source uint8

// The sources.
const (
	FromRedis  Source = iota // Redis, for all processes together
	FromMemory               // Redis, when it was asked earlier
	FromLease                // this process, by a lease from Redis
	FromHold                 // this process, by an ended lease, because OnLoss is HoldLease
	FromShare                // this process alone, with its part of the limit
	FromOpen                 // no limit: Redis does not answer, and OnLoss is Open
	FromClosed               // no limit: Redis does not answer, and OnLoss is Closed
	numSources
)

// String returns "redis", "memory", "lease", "hold", "share", "open" or "closed", fit for a metric label.
func (s Source) String() string {
	if s < numSources {
		return [numSources]string{"redis", "memory", "lease", "hold", "share", "open", "closed"}[s]
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}
