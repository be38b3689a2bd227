package cluster

import (
	"fmt"

	"github.com/spillway-go/spillway/internal/enum"
)

// Fallback decides while Redis does not answer. The zero Fallback is the default of the type that uses it.
type Fallback uint8

// The choices.
const (
	// HoldLease keeps the last grant for a while, and then acts as Divide. It is for a lease.Limit; an exact.Limit has no leases.
	HoldLease Fallback = iota + 1
	// Divide lets each process use 1/Nodes of the limit, at least one token. All together do not exceed the limit, and they
	// admit less if the load is uneven.
	Divide
	// AllowAll admits every request: an answer matters more than the limit.
	AllowAll
	// RefuseAll refuses every request: the limit matters more than an answer.
	RefuseAll
)

// String returns "hold", "divide", "allow all" or "refuse all".
func (o Fallback) String() string {
	if o >= HoldLease && o <= RefuseAll {
		return [...]string{"hold", "divide", "allow all", "refuse all"}[o-HoldLease]
	}
	return fmt.Sprintf("Fallback(%d)", uint8(o))
}

// A Source names the origin of an answer.
type Source uint8

// The sources.
const (
	FromRedis  Source = iota // Redis, for all processes together
	FromMemory               // Redis, when it was asked earlier
	FromLease                // this process, by a lease from Redis
	FromHold                 // this process, by an ended lease, because Fallback is HoldLease
	FromDivide               // this process alone, with its part of the limit
	FromNobody               // nobody: Redis does not answer, and Fallback admits or refuses all
)

// String returns "redis", "memory", "lease", "hold", "divide" or "nobody", fit for a metric label.
func (s Source) String() string { return enum.String("cluster: Source", sourceNames, s) }

// MarshalText returns s.String(), or an error if there is no such source.
func (s Source) MarshalText() ([]byte, error) { return enum.Marshal("cluster: Source", sourceNames, s) }

var sourceNames = []string{"redis", "memory", "lease", "hold", "divide", "nobody"}
