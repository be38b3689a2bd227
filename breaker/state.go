package breaker

import (
	"slices"
	"sync/atomic"
	"time"
)

// A State is what a [Breaker] does with calls.
type State string

// The states.
const (
	Closed   State = "closed"    // calls go through
	HalfOpen State = "half-open" // a few probes go through, to find out
	Open     State = "open"      // no call goes through
)

// A Mode says whether outcomes or an operator decide on the state of a [Breaker].
type Mode string

// The modes.
const (
	Auto         Mode = "auto"          // outcomes decide
	ForcedOpen   Mode = "forced-open"   // open until the mode changes
	ForcedClosed Mode = "forced-closed" // closed until the mode changes; outcomes are counted
	MetricsOnly  Mode = "metrics-only"  // closed until the mode changes; openings that would have happened are reported as events
)

// The reasons of an [Event] and of [Stats.Reason].
const (
	byFailureRate  = "failure rate"
	byConsecutive  = "consecutive failures"
	bySlowRate     = "slow rate"
	byProbe        = "probe failed"
	byLease        = "probe lost"
	byTime         = "open time over"
	byProbeSuccess = "probes succeeded"
	byHand         = "by hand"
)

// openingReasons are the reasons for which a Breaker opens.
var openingReasons = [...]string{byFailureRate, byConsecutive, bySlowRate, byProbe, byLease, byHand}

// openings counts by openingReasons.
type openings [len(openingReasons)]atomic.Int64

func (o *openings) add(reason string) {
	if i := slices.Index(openingReasons[:], reason); i >= 0 {
		o[i].Add(1)
	}
}

// byReason returns the counts above 0, or nil.
func (o *openings) byReason() (counts map[string]int64) {
	for i, reason := range openingReasons {
		if n := o[i].Load(); n > 0 {
			if counts == nil {
				counts = map[string]int64{}
			}
			counts[reason] = n
		}
	}
	return counts
}

// The places of the reasons in counts of refusals.
const (
	whyOpen = iota
	whyProbing
	whyRamp
	whyForced
	numWhys
)

var refusalReasons = [numWhys]string{whyOpen: "open", whyProbing: "half-open", whyRamp: "closing", whyForced: "forced-open"}

// reasonZero is the reason of zero values, which no constructor has made.
const reasonZero = "breaker is not made"

// An Event describes one change of state. Successive events of a Breaker form a chain: From is the To of the one before.
type Event struct {
	// Policy is the [Options.Name] of the Breaker.
	Policy string
	// Time is when the change took effect. The end of an open time, or of the lease of a probe, is noticed at the next
	// call, but takes effect at its own time.
	Time time.Time
	// From and To differ, except if WouldOpen is set.
	From, To State
	// Reason is "failure rate", "consecutive failures", "slow rate", "probe failed", "probe lost" (its lease ran out),
	// "open time over", "probes succeeded" or "by hand".
	Reason string
	// OpenFor is how long the Breaker will stay open, if To is [Open]. It is 0 if the mode keeps it open.
	OpenFor time.Duration
	// WouldOpen is true if the Breaker would have opened in another mode than [MetricsOnly]. It is reported once per Window.
	WouldOpen bool
}
