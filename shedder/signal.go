package shedder

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A Signal is a further sign of overload, such as memory near its limit, a full connection pool, or the depth of your
// own queue. While its reading is at or above its threshold, the service counts as overloaded, with [SignalHigh] as the
// reason.
//
// A Signal that returns an error or NaN, or that panics, counts as calm, and [Stats.SignalErr] says so.
type Signal struct {
	// Name identifies the signal in [Stats.Signal], [Stats.Why] and the log, such as "memory". It must be fit for a
	// metric label, must not be empty, and must differ from the names of other signals and of every [Reason].
	Name string
	// Read returns the reading as of now, such as the Read of a [stats.NewMemory]. A request calls it, at most once in
	// 20 ms, and one Shedder never calls it concurrently with itself. So it must return at once. Read slow sources less
	// often and return the last reading in between, like the sensors of package stats. It may call the Stats method of
	// the Shedder, but no other methods.
	Read func(now time.Time) (float64, error)
	// Threshold is the reading at which the service counts as overloaded, in the unit of Read. It must be finite.
	Threshold float64
}

// Throttled returns a Signal that is high while a CPU quota stops the process in at least the given share, in (0, 1], of its
// periods. It reads the last sample of cpu, which must also be the [Options.CPU]. The limit takes a quota into account even
// without this Signal: see [Stats.QuotaPause].
func Throttled(cpu CPUSampler, threshold float64) Signal {
	return Signal{Name: "throttled", Threshold: threshold, Read: func(now time.Time) (float64, error) {
		s := cpu.Sample(now)
		return float64(s.ThrottledPeriods) / float64(max(s.Periods, 1)), s.Err
	}}
}

func (g *Signal) validate(i int, before []Signal) error {
	switch {
	case g.Name == "":
		return fmt.Errorf("shedder: Signals[%d].Name must not be empty", i)
	case g.Read == nil:
		return fmt.Errorf("shedder: Signals[%d].Read must not be nil (%s)", i, g.Name)
	case math.IsNaN(g.Threshold) || math.IsInf(g.Threshold, 0):
		return fmt.Errorf("shedder: Signals[%d].Threshold must be finite, got %v (%s)", i, g.Threshold, g.Name)
	}
	for r := Calm; r <= SignalHigh; r++ {
		if g.Name == r.String() {
			return fmt.Errorf("shedder: Signals[%d].Name must not be that of a Reason, got %q", i, g.Name)
		}
	}
	for j := range before {
		if before[j].Name == g.Name {
			return fmt.Errorf("shedder: Signals[%d].Name must be unique, got %q", i, g.Name)
		}
	}
	return nil
}

// read calls Read, and turns a NaN or a panic into an error.
func (g *Signal) read(now time.Time) (value float64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
		if err != nil {
			err = fmt.Errorf("shedder: signal %s: %w", g.Name, err)
		}
	}()
	value, err = g.Read(now)
	if err == nil && math.IsNaN(value) {
		err = errors.New("reading is NaN")
	}
	return value, err
}

// readSignals reads all signals. It returns the name of the first that is high, or "", and the errors.
func readSignals(signals []Signal, now time.Time) (high string, err error) {
	for i := range signals {
		g := &signals[i]
		value, failed := g.read(now)
		switch {
		case failed != nil:
			err = errors.Join(err, failed)
		case value >= g.Threshold && high == "":
			high = g.Name
		}
	}
	return high, err
}
