package shedder

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A Signal is a further sign of overload: memory near its limit, a connection pool, the depth of a queue of your own.
// While what it reads is at its threshold or above, the service is overloaded, with [SignalHigh] as the reason.
//
// A Signal that returns an error or NaN, or that panics, counts as calm, and [Stats.SignalErr] says so.
type Signal struct {
	// Name tells the signal in [Stats.Signal], [Stats.Why] and the log, such as "memory". It is fit for a metric label, not
	// empty, and the name of no other signal and no [Reason].
	Name string
	// Read returns the reading as of now, such as the Read of a [stats.NewMemory]. It is called by a request, at most once in 20 ms
	// and never concurrently with itself by one Shedder, so it returns at once: what is slow to read is read less often,
	// with the last reading in between, as the sensors of package stats do. It may ask the Shedder for Stats, but not call
	// its other methods.
	Read func(now time.Time) (float64, error)
	// Threshold is the reading from which on the service counts as overloaded, in the unit of Read. It is finite.
	Threshold float64
}

// Throttled is the Signal that a CPU quota stops the process in at least the given share of its periods, in (0, 1]. It reads
// the last sample of cpu, the one to give as [Options.CPU]. The limit follows a quota without it: see [Stats.QuotaPause].
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

// read calls Read, and turns whatever goes wrong into an error.
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

// readSignals reads all signals, and returns the name of the first that is high, "" if none is, and what went wrong.
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
