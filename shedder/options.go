package shedder

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/spillway-go/spillway/internal/name"
	"github.com/spillway-go/spillway/shedder/internal/law"
	"github.com/spillway-go/spillway/stats"
)

// Off disables the feature of a field of [Options], where zero means the default.
const Off = -1

// The bounds of [Options.Weights].
const (
	leastWeight = 0.001
	mostWeight  = 1000
)

// Options tune a [Shedder]. The zero Options are the defaults, which suit most services.
type Options struct {
	// Name is the name of the Shedder in rejections, Stats and log lines: printable ASCII, at most 64 bytes. If Name is
	// empty, it is "shedder". It cannot be tuned later.
	Name string
	// CPUThreshold is the CPU usage at which the process counts as overloaded, as a share in (0, 1] of the CPU that it
	// may use. If CPUThreshold is 0, it is 0.9. If it is [Off], the CPU usage is ignored.
	CPUThreshold float64
	// SLO is your objective: how long an admitted request may take at the 99th percentile, from its arrival to its end.
	// It is the one knob that matters: while requests are refused, the limit is at most the number of requests that the
	// service answers within it. It is at least 10 ms. If SLO is 0, there is no objective, and the limit follows from the latency of the calm
	// service. Refusing requests cannot achieve an objective below that latency.
	SLO time.Duration
	// CPUOnly applies the plain rule: the limit is exactly pass × rt, and only a smoothed CPU usage at CPUThreshold
	// activates it. Waits of goroutines, full pools and slow dependencies are ignored.
	CPUOnly bool
	// CoolDown is how long the limit for a short CPU stays active after the last reading that showed an overload. If
	// CoolDown is 0, it is one second.
	CoolDown time.Duration
	// Window is how far back pass looks for its greatest rate. It is from 500 ms to 30 s. If Window is 0, it is 5 s.
	Window time.Duration
	// MinLimit is the number of requests in flight below which no request is refused. If MinLimit is 0 and the CPU is
	// short, it is twice the number of CPUs that the process may use, and at least 4: enough to keep every processor
	// busy. If MinLimit is 0 and requests wait for something else, such as a pool, it is 2.
	MinLimit int
	// MaxLimit is the greatest number of requests in flight while overloaded. It is at least MinLimit. If
	// MaxLimit is 0, only the law bounds it.
	MaxLimit int
	// Signals are further signs of overload, beside the CPU and the waits of goroutines. If Signals is nil, there are none.
	// Tune replaces them all: take [Shedder.Options], change a threshold, and give it back.
	Signals []Signal
	// MaxShed is the greatest share of requests that may be refused, over about a second, in (0, 1]. Above this share,
	// some requests that the limit would refuse are admitted, chosen by their time of arrival. This guards against a
	// wrong limit, but lets overload through if the limit is right. Every refusal counts, so clients that retry quickly
	// cause more requests to be admitted. If MaxShed is 0, there is no bound.
	MaxShed float64
	// Rotation is how often keys change places in the order in which requests of one priority are refused. While keys
	// have the same Rotation and the clocks of their processes agree, all services refuse the same keys first, so that a
	// few users meet all the refusals rather than all users a few. It must be at least a second. If Rotation is 0, it is an
	// hour. If it is [Off], the order never changes. Keys that send much take no turns: each gets its fair share at any
	// time.
	Rotation time.Duration
	// Weights are the shares of keys under overload, relative to a share of 1 for keys that are not in Weights: a key of
	// weight 2 is admitted up to twice the rate of others before it is refused for their sake. Weights are from 0.001 to
	// 1000. If Weights is nil, all keys have equal shares.
	Weights map[string]float64
	// FairRoutes divides the busy time among the routes ([spillway.Request.Route]) of one priority under overload: each route
	// gets at least its max-min fair share. So cheap requests are not refused because expensive ones ask for too much. The busy
	// time of a route is its rate times the latency of its requests in the calm service, which the Shedder learns for up
	// to 256 routes; all others are one. Requests with a [spillway.Request.Cost] above 0 count as that many tokens
	// instead, and the Shedder learns the latency per token. Within a route, keys share as ever. FairRoutes suits routes
	// that spend their latency at the scarce resource, such as a database, and not routes that mostly wait for others.
	FairRoutes bool
	// MaxQueue is how many requests may wait for room, instead of being refused at once. It suits patient callers and short
	// bursts; docs/queues.md says when waiting helps. If MaxQueue is 0, no request waits. It cannot be tuned to or from 0.
	MaxQueue int
	// MaxWait is how long a request may wait, from 1 ms to an hour. If MaxWait is 0, it is 250 ms.
	MaxWait time.Duration
	// Disabled is the kill switch: a disabled Shedder admits everything and goes on measuring.
	Disabled bool

	// CPU reads how much CPU is used. If CPU is nil, New makes a [stats.NewCPU] with its defaults. Share one sensor
	// between all Shedders of a process. It cannot be tuned later.
	CPU CPUSampler
	// Sched reads how long goroutines wait for a processor. If Sched is nil, New makes a [stats.NewSchedLatency] that looks
	// at the 90th percentile every 20 ms. It cannot be tuned later.
	Sched SchedSampler
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

// withDefaults returns o with every zero field set to its default, or an error that names the invalid field.
func (o Options) withDefaults() (Options, error) {
	o.CPUThreshold = cmp.Or(o.CPUThreshold, 0.9)
	o.CoolDown = cmp.Or(o.CoolDown, time.Second)
	o.Window = cmp.Or(o.Window, 5*time.Second)
	o.MaxLimit = cmp.Or(o.MaxLimit, math.MaxInt)
	o.Rotation = cmp.Or(o.Rotation, time.Hour)
	o.MaxWait = cmp.Or(o.MaxWait, 250*time.Millisecond)
	o.Signals = slices.Clone(o.Signals)
	o.Weights = maps.Clone(o.Weights)
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
	case o.Rotation != Off && o.Rotation < time.Second:
		return fmt.Errorf("shedder: Rotation must be at least 1s, or Off, got %v", o.Rotation)
	case !(o.MaxShed >= 0 && o.MaxShed <= 1):
		return fmt.Errorf("shedder: MaxShed must be in (0, 1], or 0 for no bound, got %v", o.MaxShed)
	case o.MaxQueue < 0:
		return fmt.Errorf("shedder: MaxQueue must not be negative, got %d", o.MaxQueue)
	case o.MaxWait < time.Millisecond || o.MaxWait > time.Hour:
		return fmt.Errorf("shedder: MaxWait must be 1ms to 1h, got %v", o.MaxWait)
	}
	for key, w := range o.Weights {
		if !(w >= leastWeight && w <= mostWeight) {
			return fmt.Errorf("shedder: Weights[%q] must be in %v..%v, got %v", key, leastWeight, mostWeight, w)
		}
	}
	for i := range o.Signals {
		if err := o.Signals[i].validate(i, o.Signals[:i]); err != nil {
			return err
		}
	}
	return nil
}

// lawOptions returns the options of the law.
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
