package shedder

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/spillway-go/spillway/stats"
)

// The defaults of [Options].
const (
	DefaultCPUThreshold = 0.9
	DefaultStreak       = 4
	DefaultMaxDelay     = 100 * time.Millisecond
	DefaultCoolDown     = time.Second
	DefaultWindow       = 5 * time.Second
	DefaultBuckets      = 50
)

// Off disables what a field of [Options] stands for, where zero means its default.
const Off = -1

// Options tune a [Shedder]. The zero Options are the defaults, which suit most services: nothing has to be set.
type Options struct {
	// CPUThreshold is the share of the CPU that the process may use, in (0, 1], from which on it counts as overloaded.
	// If CPUThreshold is 0, it is 0.9. If it is [Off], the CPU is not looked at.
	CPUThreshold float64
	// Streak is how many raw CPU samples in a row at or above CPUThreshold mean overload, long before the smoothed usage
	// says so. If Streak is 0, it is 4, which is one second. If it is [Off], only the smoothed usage counts.
	Streak int
	// MaxDelay is how much longer than undisturbed a request may take while the service is overloaded: the one knob
	// between latency (less) and utilization (more). It is added to rt in pass × rt; goroutines that wait half of it for
	// a processor mean overload; and a seventh of it is what such waits are steered to. The pauses of a CPU quota come on
	// top, since nobody can help them. If MaxDelay is 0, it is 100 ms. If it is [Off], the rule is pass × rt to the
	// letter, and only the CPU says when. If SLO is set, MaxDelay follows from it and must be 0.
	MaxDelay time.Duration
	// SLO is your objective: how long an answer may take until it is worthless to whoever asked. MaxDelay is then what
	// keeps nearly all of the admitted within it, two fifths of what it leaves beyond rt, and follows rt as that is learnt. If
	// SLO is 0, there is none. An objective near rt or below cannot be kept by refusing; MaxDelay is a twentieth of it then.
	SLO time.Duration
	// CoolDown is how long the limit stays in force after the last reading that said overloaded.
	// If CoolDown is 0, it is one second.
	CoolDown time.Duration
	// Window is how far back pass looks for its greatest rate. If Window is 0, it is 5 s.
	Window time.Duration
	// Buckets is the number of parts of Window, each of which yields one rate. If Buckets is 0, it is 50.
	Buckets int
	// MinLimit is the least number of requests in flight that is never refused for their number. If MinLimit is 0, it is
	// twice GOMAXPROCS, and at least 4: enough to keep every processor busy, and to go on after a pause of a CPU quota.
	MinLimit int
	// MaxLimit is the greatest number of requests in flight while overloaded. If MaxLimit is 0, there is none.
	MaxLimit int
	// Signals are further signs of overload, beside the CPU and the waits of goroutines. If Signals is nil, there are none.
	// Tune replaces them all: take [Shedder.Options], change a threshold, and give it back.
	Signals []Signal
	// MaxShed is the greatest share of requests that may be refused, over about a second, in (0, 1]. Beyond it some of
	// those that the limit would refuse pass, chosen by the time of their arrival: a guard against a limit that is
	// wrong, paid for with overload if it is right. Refusals count then: who keeps asking makes others pass. If MaxShed
	// is 0, there is no bound.
	MaxShed float64
	// Disabled is the kill switch: a disabled Shedder admits everything and goes on measuring.
	Disabled bool

	// CPU reads how much CPU is used. If CPU is nil, New makes a [stats.CPU] with its defaults. Give the same one to
	// several Shedders of a process. It cannot be tuned later.
	CPU CPUSampler
	// Sched reads how long goroutines wait for a processor. If Sched is nil, New makes a [stats.SchedLatency] that looks
	// at the 90th percentile every 20 ms. It cannot be tuned later.
	Sched SchedSampler
	// Logger gets one line when overload begins and one when it ends. If Logger is nil, nothing is logged.
	// It cannot be tuned later.
	Logger *slog.Logger
}

// A CPUSampler says how much of its CPU the process uses: a [stats.CPU], or a stand-in. Sample is called often, from many
// goroutines, and returns at once.
type CPUSampler interface {
	Sample(now time.Time) stats.CPUSample
}

// A SchedSampler says how long goroutines wait for a processor: a [stats.SchedLatency], or a stand-in. Sample is called
// often, from many goroutines, and returns at once.
type SchedSampler interface {
	Sample(now time.Time) stats.SchedSample
}

// withDefaults returns o with every zero field set to its default, or an error that names the field that cannot be right.
func (o Options) withDefaults() (Options, error) {
	setDefault(&o.CPUThreshold, DefaultCPUThreshold)
	setDefault(&o.Streak, DefaultStreak)
	if o.SLO == 0 {
		setDefault(&o.MaxDelay, DefaultMaxDelay)
	}
	setDefault(&o.CoolDown, DefaultCoolDown)
	setDefault(&o.Window, DefaultWindow)
	setDefault(&o.Buckets, DefaultBuckets)
	setDefault(&o.MinLimit, max(4, 2*runtime.GOMAXPROCS(0)))
	setDefault(&o.MaxLimit, math.MaxInt)
	o.Signals = slices.Clone(o.Signals)
	return o, o.validate()
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o *Options) validate() error {
	switch {
	case !(o.CPUThreshold > 0 && o.CPUThreshold <= 1) && o.CPUThreshold != Off:
		return fmt.Errorf("shedder: CPUThreshold must be in (0, 1] or Off, got %v", o.CPUThreshold)
	case o.Streak < 1 && o.Streak != Off:
		return fmt.Errorf("shedder: Streak must be at least 1 or Off, got %d", o.Streak)
	case o.SLO != 0 && o.SLO < 10*time.Millisecond:
		return fmt.Errorf("shedder: SLO must be at least 10ms, or 0 for none, got %v", o.SLO)
	case o.SLO != 0 && o.MaxDelay != 0:
		return fmt.Errorf("shedder: MaxDelay must be 0 if SLO is set, got %v and an SLO of %v", o.MaxDelay, o.SLO)
	case o.SLO == 0 && o.MaxDelay < time.Millisecond && o.MaxDelay != Off:
		return fmt.Errorf("shedder: MaxDelay must be at least 1ms or Off, got %v", o.MaxDelay)
	case o.CoolDown < 0:
		return fmt.Errorf("shedder: CoolDown must not be negative, got %v", o.CoolDown)
	case o.Buckets < 1:
		return fmt.Errorf("shedder: Buckets must be at least 1, got %d", o.Buckets)
	case o.Window/time.Duration(o.Buckets) < time.Millisecond:
		return fmt.Errorf("shedder: Window must be at least 1ms for each of %d Buckets, got %v", o.Buckets, o.Window)
	case o.MinLimit < 1:
		return fmt.Errorf("shedder: MinLimit must be at least 1, got %d", o.MinLimit)
	case o.MaxLimit < o.MinLimit:
		return fmt.Errorf("shedder: MaxLimit must be at least MinLimit, which is %d, got %d", o.MinLimit, o.MaxLimit)
	case !(o.MaxShed >= 0 && o.MaxShed <= 1):
		return fmt.Errorf("shedder: MaxShed must be in (0, 1], or 0 for no bound, got %v", o.MaxShed)
	}
	for i := range o.Signals {
		if err := o.Signals[i].validate(i, o.Signals[:i]); err != nil {
			return err
		}
	}
	return nil
}

// maxDelay returns the MaxDelay in force for an undisturbed latency of rt ns, 0 if that is not known. A request that waits
// for the allowance of MaxDelay may wait as long again for a processor.
func (o *Options) maxDelay(rt float64) time.Duration {
	if o.SLO == 0 {
		return o.MaxDelay
	}
	return max((o.SLO-time.Duration(rt))*2/5, o.SLO/20, time.Millisecond)
}
