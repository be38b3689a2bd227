package cluster

import "fmt"

// OnLoss is what decides while Redis gives no answer. The zero OnLoss is the default of whatever is made with it.
type OnLoss uint8

// The choices.
const (
	// HoldLease keeps to the last grant for a while, and then does as Share. It is for leases; a [Limit] has none.
	HoldLease OnLoss = iota + 1
	// Share has each process go on with its part of the limit: one of so many nodes, at least one token. All together do not
	// let through more than the limit, and less if the load is not spread evenly.
	Share
	// Open lets everything through: being answered matters more than the limit.
	Open
	// Closed lets nothing through: the limit matters more than being answered.
	Closed
)

// String returns "hold", "share", "open" or "closed".
func (o OnLoss) String() string {
	if o >= HoldLease && o <= Closed {
		return [...]string{"hold", "share", "open", "closed"}[o-HoldLease]
	}
	return fmt.Sprintf("OnLoss(%d)", uint8(o))
}

// A Source says who gave an answer.
type Source uint8

// The sources.
const (
	FromRedis  Source = iota // Redis, for all processes together
	FromMemory               // Redis, when it was asked earlier
	FromLease                // this process, by a lease from Redis
	FromHold                 // this process, by a lease that ended, since OnLoss is HoldLease
	FromShare                // this process alone, with its part of the limit
	FromOpen                 // nobody: Redis is lost, and OnLoss is Open
	FromClosed               // nobody: Redis is lost, and OnLoss is Closed
	numSources
)

// String returns "redis", "memory", "lease", "hold", "share", "open" or "closed", fit for a metric label.
func (s Source) String() string {
	if s < numSources {
		return [numSources]string{"redis", "memory", "lease", "hold", "share", "open", "closed"}[s]
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}
