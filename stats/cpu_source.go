package stats

import (
	"fmt"
	"math"
	"time"
)

// A CPUSource reads how much CPU time has been used so far, and how much may be. CgroupCPU, HostCPU, ProcessCPU and
// AutoCPU make one; a CPUFunc is one.
//
// Most callers do not read a source directly: they give it to NewCPU.
type CPUSource interface {
	// ReadCPU reads the counters. The time now serves to decide whether something that changes rarely, such as a limit,
	// is due to be read again. A failure is an error, never a reading of 0. ReadCPU may be called concurrently.
	ReadCPU(now time.Time) (CPUReading, error)
}

// A CPUReading is what a CPUSource has read. A source that counts CPU time fills in Levels; one that knows the usage
// itself sets Direct and Usage.
type CPUReading struct {
	// Source names what was read, such as "cgroup v2". It is a constant, fit for a metric label.
	Source string
	// At is when the counters were read. Zero means the time that was given to ReadCPU, which may be earlier by as
	// long as the goroutine that read waited for a processor.
	At time.Time
	// Levels are the limits that apply, each with the CPU time used under it. The process may be stopped by whichever is
	// reached first, so the greatest usage among them counts.
	Levels []CPULevel
	// Direct says that Usage is the usage, and that Levels is not used.
	Direct bool
	// Usage is the fraction of the CPU that may be used that was in use lately, if Direct. What is above 1 counts as 1.
	Usage float64
}

// A CPULevel is one limit on CPU time and the use of it by everything that shares it. All counters start anywhere,
// and only ever grow; one that has become smaller is taken for a new one.
type CPULevel struct {
	// Name distinguishes this level from the others of its source, such as the path of a control group. Counters are compared
	// with earlier ones of the same name.
	Name string
	// Used is the CPU time used so far, summed over all CPUs.
	Used time.Duration
	// Limit is how many CPUs may be used, more than 0: 0.5 for half a CPU.
	Limit float64
	// Period is the time over which a quota is enforced, 0 if unknown. Periods and ThrottledPeriods count such periods,
	// and those of them in which the quota was used up. Throttled is how long threads were stopped for it, summed over
	// all CPUs.
	Period                    time.Duration
	Periods, ThrottledPeriods uint64
	Throttled                 time.Duration
}

// A CPUFunc is a CPUSource made of the user's own function. It returns the fraction of the CPU this process may use
// that is in use: a finite number, at least 0; above 1 counts as 1. Its error, or any other number, makes the usage
// unknown. NewCPU's sampler never runs it concurrently with itself.
type CPUFunc func() (float64, error)

// ReadCPU calls f.
func (f CPUFunc) ReadCPU(time.Time) (CPUReading, error) {
	usage, err := f()
	return CPUReading{Source: "func", Direct: true, Usage: usage}, err
}

// exhausted reports whether the quota was used up in every one of its periods within the span since base.
func (l *CPULevel) exhausted(base *CPULevel, span time.Duration) bool {
	if l.Period <= 0 || span < l.Period || l.Periods <= base.Periods || l.ThrottledPeriods <= base.ThrottledPeriods {
		return false
	}
	periods := l.Periods - base.Periods
	// The kernel counts no periods while the group is idle, so they must also fill the span.
	return l.ThrottledPeriods-base.ThrottledPeriods >= periods && periods >= uint64(span/l.Period)
}

// validate reports what in r cannot be right.
func (r *CPUReading) validate() error {
	if r.Direct {
		if !(r.Usage >= 0 && r.Usage <= math.MaxFloat64) {
			return fmt.Errorf("stats: %s: usage must be finite and at least 0, got %v", r.Source, r.Usage)
		}
		return nil
	}
	if len(r.Levels) == 0 {
		return fmt.Errorf("stats: %s: a reading must have a level", r.Source)
	}
	for i := range r.Levels {
		if l := r.Levels[i].Limit; !(l > 0 && l <= math.MaxFloat64) {
			return fmt.Errorf("stats: %s: limit must be finite and more than 0, got %v", r.Source, l)
		}
	}
	return nil
}
