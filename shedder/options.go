package shedder

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/spillway-go/spillway/internal/name"
	"github.com/spillway-go/spillway/shedder/internal/law"
	"github.com/spillway-go/spillway/stats"
)

// Off disables what a field of [Options] stands for, where zero means its default.
const Off = -1

// Options tune a [Shedder]. The zero Options are the defaults, which suit most services: nothing has to be set.
type Options struct {
	// Name is what rejections, Stats and log lines call the Shedder: printable ASCII, at most 64 bytes. If Name is empty, it is
	// "shedder". It cannot be tuned later.
	Name string
	// CPUThreshold is the share of the CPU that the process may use, in (0, 1], from which on it counts as overloaded.
	// If CPUThreshold is 0, it is 0.9. If it is [Off], the CPU is not looked at.
	CPUThreshold float64
	// SLO is your objective: how long an admitted request may take at the 99th percentile, from its arrival to its end. It is
	// the one knob that matters: while requests are refused, the limit is at most what the service answers within it. If
	// SLO is 0, there is none, and the limit follows from the latency that the service has while it is calm. An objective
	// below that latency cannot be kept by refusing.
	SLO time.Duration
	// CPUOnly keeps the rule to the letter: the limit is exactly pass × rt, and only a smoothed CPU usage at CPUThreshold
	// puts it in force. Waits of goroutines, full pools and slow dependencies are not looked at then.
	CPUOnly bool
	// CoolDown is how long the limit for a short CPU stays in force after the last reading that said overloaded.
	// If CoolDown is 0, it is one second.
	CoolDown time.Duration
	// Window is how far back pass looks for its greatest rate. If Window is 0, it is 5 s.
	Window time.Duration
	// MinLimit is a number of requests in flight below which none is refused. If MinLimit is 0, it is twice the number of
	// CPUs that the process may use, and at least 4, while the CPU is short: enough to keep every processor busy. While
	// requests wait for something else, such as a pool, it is 2 then.
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

	// CPU reads how much CPU is used. If CPU is nil, New makes a [stats.NewCPU] with its defaults. Give the same one to
	// several Shedders of a process. It cannot be tuned later.
	CPU CPUSampler
	// Sched reads how long goroutines wait for a processor. If Sched is nil, New makes a [stats.NewSchedLatency] that looks
	// at the 90th percentile every 20 ms. It cannot be tuned later.
	Sched SchedSampler
	// Logger gets one line when overload begins and one when it ends. If Logger is nil, nothing is logged.
	// It cannot be tuned later.
	Logger *slog.Logger
}

// A CPUSampler says how much of its CPU the process uses: a [stats.NewCPU], or a stand-in. Sample is called often, from many
// goroutines, and returns at once.
type CPUSampler interface {
	Sample(now time.Time) stats.CPUSample
}

// A SchedSampler says how long goroutines wait for a processor: a [stats.NewSchedLatency], or a stand-in. Sample is called
// often, from many goroutines, and returns at once.
type SchedSampler interface {
	Sample(now time.Time) stats.SchedSample
}

// withDefaults returns o with every zero field set to its default, or an error that names the field that cannot be right.
func (o Options) withDefaults() (Options, error) {
	o.CPUThreshold = cmp.Or(o.CPUThreshold, 0.9)
	o.CoolDown = cmp.Or(o.CoolDown, time.Second)
	o.Window = cmp.Or(o.Window, 5*time.Second)
	o.MaxLimit = cmp.Or(o.MaxLimit, math.MaxInt)
	o.Signals = slices.Clone(o.Signals)
	var err error
	if o.Name, err = name.Or("shedder", o.Name, "shedder"); err != nil {
		return o, err //nolint:wrapcheck // it names the field
	}
	return o, o.validate()
}

func (o *Options) validate() error {
	switch {
	case !(o.CPUThreshold > 0 && o.CPUThreshold <= 1) && o.CPUThreshold != Off:
		return fmt.Errorf("shedder: CPUThreshold must be in (0, 1] or Off, got %v", o.CPUThreshold)
	case o.SLO != 0 && o.SLO < 10*time.Millisecond:
		return fmt.Errorf("shedder: SLO must be at least 10ms, or 0 for none, got %v", o.SLO)
	case o.CoolDown < 0:
		return fmt.Errorf("shedder: CoolDown must not be negative, got %v", o.CoolDown)
	case o.Window < 500*time.Millisecond || o.Window > 30*time.Second:
		return fmt.Errorf("shedder: Window must be 500ms to 30s, got %v", o.Window)
	case o.MinLimit < 0:
		return fmt.Errorf("shedder: MinLimit must not be negative, got %d", o.MinLimit)
	case o.MaxLimit < max(1, o.MinLimit):
		return fmt.Errorf("shedder: MaxLimit must be at least 1 and MinLimit, which is %d, got %d", o.MinLimit, o.MaxLimit)
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

// lawOptions returns what the law goes by.
func (o *Options) lawOptions() law.Options {
	l := law.Options{
		Threshold: o.CPUThreshold, CoolDown: o.CoolDown.Seconds(), Window: o.Window.Seconds(), SLO: o.SLO.Seconds(),
		CPUOnly: o.CPUOnly, MinLimit: float64(o.MinLimit), MaxLimit: float64(o.MaxLimit),
	}
	if o.CPUThreshold == Off {
		l.Threshold = math.Inf(1)
	}
	if o.MaxLimit == math.MaxInt {
		l.MaxLimit = math.Inf(1)
	}
	return l
}
