package breaker

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/enum"
)

// A State is what a [Breaker] does with calls.
type State uint8

// The states.
const (
	Closed   State = iota // calls go through
	HalfOpen              // a few probes go through, to find out
	Open                  // no call goes through
)

// String returns "closed", "half-open" or "open".
func (s State) String() string { return enum.String(stateKind, stateNames, s) }

// MarshalText returns s.String(), or an error if there is no such state.
func (s State) MarshalText() ([]byte, error) { return enum.Marshal(stateKind, stateNames, s) }

// UnmarshalText reads the text of [State.String].
func (s *State) UnmarshalText(text []byte) error {
	return enum.Unmarshal(stateKind, stateNames, s, text)
}

const (
	stateKind = "breaker: State"
	modeKind  = "breaker: Mode"
)

var (
	stateNames = []string{"closed", "half-open", "open"}
	modeNames  = []string{"auto", "forced-open", "forced-closed", "metrics-only"}
)

// A Mode says whether outcomes or an operator decide on the state of a [Breaker].
type Mode uint8

// The modes.
const (
	Auto         Mode = iota // outcomes decide
	ForcedOpen               // open until the mode changes
	ForcedClosed             // closed until the mode changes; outcomes are counted
	MetricsOnly              // closed until the mode changes; openings that would have happened are reported as events
	numModes
)

// String returns "auto", "forced-open", "forced-closed" or "metrics-only".
func (m Mode) String() string { return enum.String(modeKind, modeNames, m) }

// MarshalText returns m.String(), or an error if there is no such mode.
func (m Mode) MarshalText() ([]byte, error) { return enum.Marshal(modeKind, modeNames, m) }

// UnmarshalText reads the text of [Mode.String].
func (m *Mode) UnmarshalText(text []byte) error { return enum.Unmarshal(modeKind, modeNames, m, text) }

// The reasons of an [Event] and of [Stats.Reason].
const (
	ByFailureRate  = "failure rate"
	ByConsecutive  = "consecutive failures"
	BySlowRate     = "slow rate"
	ByProbe        = "probe failed"
	ByLease        = "probe lost"
	ByTime         = "open time over"
	ByProbeSuccess = "probes succeeded"
	ByHand         = "by hand"
)

// openingReasons are the reasons for which a Breaker opens.
var openingReasons = [...]string{ByFailureRate, ByConsecutive, BySlowRate, ByProbe, ByLease, ByHand}

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
	// Reason is one of the constants above, such as [ByFailureRate].
	Reason string
	// OpenFor is how long the Breaker will stay open, if To is [Open]. It is 0 if the mode keeps it open.
	OpenFor time.Duration
	// WouldOpen is true if the Breaker would have opened in another mode than [MetricsOnly]. It is reported once per Window.
	WouldOpen bool
}
