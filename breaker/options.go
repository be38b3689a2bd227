package breaker

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/spillway-go/spillway/internal/name"
)

// Off disables a rule in [Options] and [ThrottleOptions], where zero stands for the default.
const Off = -1

// Upper limits for Options, so that a typing error does not cost gigabytes.
const (
	maxBuckets     = 1000
	maxWindowCalls = 1 << 20
	maxProbes      = 1 << 10
	maxDuration    = 365 * 24 * time.Hour
	maxSlowWindows = 10 // SlowCall may be as long as this many windows
)

// Options tune a [Breaker]. The zero Options are the defaults.
type Options struct {
	// Name is the name of the Breaker in rejections, events and Stats, such as "checkout-db": printable ASCII, at most
	// 64 bytes. If Name is empty, it is "breaker". It cannot change later.
	Name string
	// Window is how far back outcomes count, and how long a hanging call counts. It is also how long a Breaker must
	// stay closed to forget one opening. It is at most a year. If Window is 0, it is 10 s. It cannot change later.
	Window time.Duration `tune:"-"`
	// Buckets is the number of steps in which the Window moves on, at most 1000. Window in nanoseconds must be a
	// multiple of it. If Buckets is 0, it is 10. It cannot change later.
	Buckets int `tune:"-"`
	// WindowCalls, if positive, computes the rates over the last WindowCalls outcomes, however old, instead of over the
	// Window. It is at most 2^20. If WindowCalls is 0, the rates are those of the Window. It cannot change later.
	WindowCalls int `tune:"-"`

	// MinCalls is how many outcomes there must be before a rate counts. It must not exceed WindowCalls, if that is set.
	// If MinCalls is 0, it is 20, or WindowCalls if that is less.
	MinCalls int
	// FailureRate is the share of outcomes, in (0, 1], that opens the Breaker when they are failures. It is compared in
	// integers: 57 of 100 reach 0.57. If FailureRate is 0, it is 0.5. If it is [Off], the rate does not matter.
	FailureRate float64
	// Consecutive is how many failures in a row open the Breaker. Old failures in the row still count, so a dependency
	// that is called once a minute trips too. If Consecutive is 0, it is 10. If it is [Off], failures in a row do not
	// open the Breaker.
	Consecutive int
	// SlowCall is the latency beyond which a call counts as slow, and as a failed probe. A call under way counts as slow
	// too once it is older than SlowCall: at most one bucket later, and for one Window. SlowCall is at most ten windows.
	// If SlowCall is 0, no call is slow.
	SlowCall time.Duration
	// SlowRate is the share of calls, in (0, 1], that opens the Breaker when they are slow, whether they fail or not.
	// If SlowRate is 0, it is 0.5. If it is [Off], slow calls open nothing. It has no effect without SlowCall.
	SlowRate float64

	// OpenFor is how long the Breaker stays open the first time. Each reopening doubles it, up to MaxOpen; each Window that the
	// Breaker stays closed undoes one doubling. It is at most a year. If OpenFor is 0, it is 5 s.
	OpenFor time.Duration
	// MaxOpen is the longest time that the Breaker stays open, even if a server asked for more. If MaxOpen is 0, it is one
	// minute, or OpenFor if that is more.
	MaxOpen time.Duration
	// Jitter is the share, in (0, 1), by which open times vary up and down, so that many clients do not probe at once.
	// If Jitter is 0, it is 0.2. If it is [Off], they do not vary.
	Jitter float64

	// Probes is how many calls may try the dependency at once while the Breaker is half-open, at most 1024.
	// If Probes is 0, it is 3.
	Probes int
	// ProbeSuccesses is how many probes must succeed to close the Breaker. With ProbeFailureRate, it is how many probes
	// must end before the Breaker decides. If ProbeSuccesses is 0, it is Probes.
	ProbeSuccesses int
	// ProbeFailureRate is the share of probes, in (0, 1], that reopens the Breaker when they fail.
	// If ProbeFailureRate is 0, one failure reopens it.
	ProbeFailureRate float64
	// ProbeLease is how long a probe may take. One that takes longer, or never reports, is a failed probe, so a lost call
	// cannot keep the Breaker half-open. It is at most a year. If ProbeLease is 0, it is the greater of OpenFor and SlowCall.
	ProbeLease time.Duration
	// Ramp is how long a Breaker that closed after probes takes to admit all calls again. It admits 10, 25 and 50 % of
	// the calls, each for a third of the time. All rules apply meanwhile. It is at most a year. If Ramp is 0, all calls return at once.
	Ramp time.Duration

	// Seed determines the jitter. If Seed is 0, it is random. It cannot change later.
	Seed uint64 `tune:"-"`
	// OnEvent is called for every change of state and, in mode [MetricsOnly], for every opening that would have happened.
	// Events come one at a time and in order, after all locks are released, on the goroutine of a request: OnEvent should
	// not block. It may call any method of the Breaker. If it panics, the panic is counted
	// in [Stats.Panics] and goes no further.
	OnEvent func(Event)
}

// withDefaults returns o with every zero field set to its default, or an error that names the invalid field.
func (o Options) withDefaults() (Options, error) {
	o.Window = cmp.Or(o.Window, 10*time.Second)
	o.Buckets = cmp.Or(o.Buckets, 10)
	minCalls := 20
	if o.WindowCalls > 0 {
		minCalls = min(minCalls, o.WindowCalls)
	}
	o.MinCalls = cmp.Or(o.MinCalls, minCalls)
	o.FailureRate = cmp.Or(o.FailureRate, 0.5)
	o.Consecutive = cmp.Or(o.Consecutive, 10)
	o.SlowRate = cmp.Or(o.SlowRate, 0.5)
	o.OpenFor = cmp.Or(o.OpenFor, 5*time.Second)
	o.MaxOpen = cmp.Or(o.MaxOpen, max(time.Minute, o.OpenFor))
	o.Jitter = cmp.Or(o.Jitter, 0.2)
	o.Probes = cmp.Or(o.Probes, 3)
	o.ProbeSuccesses = cmp.Or(o.ProbeSuccesses, o.Probes)
	o.ProbeLease = cmp.Or(o.ProbeLease, max(o.OpenFor, o.SlowCall))
	var err error
	if o.Name, err = name.Or("breaker", o.Name, "breaker"); err != nil {
		return o, err //nolint:wrapcheck // it names the field
	}
	return o, o.validate()
}

func (o *Options) validate() error {
	for _, check := range []func() error{o.validateWindow, o.validateRules, o.validateOpen, o.validateProbes} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) validateWindow() error {
	switch {
	case o.Buckets < 1 || o.Buckets > maxBuckets:
		return fmt.Errorf("breaker: Buckets must be in 1..%d, got %d", maxBuckets, o.Buckets)
	case o.Window <= 0 || o.Window%time.Duration(o.Buckets) != 0:
		return fmt.Errorf("breaker: Window must be a positive multiple of Buckets (%d) nanoseconds, got %v", o.Buckets, o.Window)
	case o.Window > maxDuration:
		return fmt.Errorf("breaker: Window must be at most a year, got %v", o.Window)
	case o.WindowCalls < 0 || o.WindowCalls > maxWindowCalls:
		return fmt.Errorf("breaker: WindowCalls must be in 0..%d, got %d", maxWindowCalls, o.WindowCalls)
	}
	return nil
}

func (o *Options) validateRules() error {
	switch {
	case o.MinCalls < 1:
		return fmt.Errorf("breaker: MinCalls must be at least 1, got %d", o.MinCalls)
	case o.WindowCalls > 0 && o.MinCalls > o.WindowCalls:
		return fmt.Errorf("breaker: MinCalls must be at most WindowCalls (%d), got %d", o.WindowCalls, o.MinCalls)
	case !isShare(o.FailureRate) && o.FailureRate != Off:
		return fmt.Errorf("breaker: FailureRate must be in (0, 1] or Off, got %v", o.FailureRate)
	case o.Consecutive < 1 && o.Consecutive != Off:
		return fmt.Errorf("breaker: Consecutive must be at least 1 or Off, got %d", o.Consecutive)
	case o.SlowCall < 0 || o.SlowCall > maxSlowWindows*o.Window:
		return fmt.Errorf("breaker: SlowCall must be in 0..%v, %d windows, got %v", maxSlowWindows*o.Window, maxSlowWindows, o.SlowCall)
	case !isShare(o.SlowRate) && o.SlowRate != Off:
		return fmt.Errorf("breaker: SlowRate must be in (0, 1] or Off, got %v", o.SlowRate)
	}
	return nil
}

func (o *Options) validateOpen() error {
	switch {
	case o.OpenFor <= 0 || o.OpenFor > maxDuration:
		return fmt.Errorf("breaker: OpenFor must be positive and at most a year, got %v", o.OpenFor)
	case o.MaxOpen < o.OpenFor || o.MaxOpen > maxDuration:
		return fmt.Errorf("breaker: MaxOpen must be at least OpenFor (%v) and at most a year, got %v", o.OpenFor, o.MaxOpen)
	case !(o.Jitter > 0 && o.Jitter < 1) && o.Jitter != Off:
		return fmt.Errorf("breaker: Jitter must be in (0, 1) or Off, got %v", o.Jitter)
	}
	return nil
}

func (o *Options) validateProbes() error {
	switch {
	case o.Probes < 1 || o.Probes > maxProbes:
		return fmt.Errorf("breaker: Probes must be in 1..%d, got %d", maxProbes, o.Probes)
	case o.ProbeSuccesses < 1:
		return fmt.Errorf("breaker: ProbeSuccesses must be at least 1, got %d", o.ProbeSuccesses)
	case !isShare(o.ProbeFailureRate) && o.ProbeFailureRate != 0:
		return fmt.Errorf("breaker: ProbeFailureRate must be in (0, 1] or 0, got %v", o.ProbeFailureRate)
	case o.ProbeLease <= 0 || o.ProbeLease > maxDuration:
		return fmt.Errorf("breaker: ProbeLease must be positive and at most a year, got %v", o.ProbeLease)
	case o.Ramp < 0 || o.Ramp > maxDuration:
		return fmt.Errorf("breaker: Ramp must not be negative and at most a year, got %v", o.Ramp)
	}
	return nil
}

// isShare reports whether x is in (0, 1]; NaN is not.
func isShare(x float64) bool { return x > 0 && x <= 1 }

// A rate is a share in billionths, so that it compares exactly with one count out of another. It is rounded down: 2 of 3
// reach 2.0/3, which has no exact value.
type rate int64

const one rate = 1e9

// rateOf returns x as a rate; [Off] becomes a rate that nothing reaches.
func rateOf(x float64) rate {
	if x == Off {
		return math.MaxInt64
	}
	return rate(math.Floor(x * float64(one)))
}

// reachedBy reports whether n of total is at least r.
func (r rate) reachedBy(n, total int64) bool {
	if r > one || total <= 0 {
		return false
	}
	nHigh, nLow := bits.Mul64(uint64(n), uint64(one))
	high, low := bits.Mul64(uint64(total), uint64(r))
	return nHigh > high || nHigh == high && nLow >= low
}
