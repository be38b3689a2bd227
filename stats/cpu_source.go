package stats

import (
	"fmt"
	"math"
	"time"
)

// A CPUSource reads how much CPU time has been used so far, and how much may be used. CgroupCPU, HostCPU, ProcessCPU
// and AutoCPU make one.
//
// Most callers do not read a source directly: they give it to NewCPU.
type CPUSource interface {
	// ReadCPU reads the counters. The source uses now to decide whether to read rarely changing figures again, such as
	// a limit. A failure is an error, never a reading of 0. ReadCPU may be called concurrently.
	ReadCPU(now time.Time) (CPUReading, error)
}

// A CPUReading is the result of one reading of a CPUSource. A source that counts CPU time fills in Levels; one that
// knows the usage itself sets Direct and Usage.
type CPUReading struct {
	// Source names what was read, such as "cgroup v2". It is a constant, fit for a metric label.
	Source string
	// At is when the counters were read. Zero means the time that was given to ReadCPU, which may be a little early if
	// the reading goroutine had to wait for a processor.
	At time.Time
	// Procs is how many threads of the process may run at once. 0 is runtime.GOMAXPROCS.
	Procs int
	// Levels are the limits that apply, each with the CPU time used under it. The first limit to be reached stops the
	// process, so the greatest usage among them counts.
	Levels []CPULevel
	// Direct says that Usage is the usage, and that Levels is not used.
	Direct bool
	// Usage is the recent CPU usage, as a fraction of the CPU that may be used. It is only read if Direct is set.
	// Values above 1 count as 1.
	Usage float64
}

// A CPULevel is one limit on CPU time, with the CPU time used by everything that shares the limit. Counters may start
// at any value and only grow; a counter that has become smaller counts as a new one.
type CPULevel struct {
	// Name distinguishes this level from the others of its source, such as the path of a control group. Counters are compared
	// with earlier ones of the same name.
	Name string
	// Used is the CPU time used so far, summed over all CPUs.
	Used time.Duration
	// Limit is the number of CPUs that may be used, more than 0: 0.5 for half a CPU.
	Limit float64
	// Period is the time over which a quota is enforced, 0 if unknown. Periods counts these periods, and
	// ThrottledPeriods counts the periods in which the quota was used up. Throttled is how long threads were stopped
	// because of it, summed over all CPUs.
	Period                    time.Duration
	Periods, ThrottledPeriods uint64
	Throttled                 time.Duration
}

// A cpuFunc is the CPUSource of [CPUOptions.Read].
type cpuFunc func() (float64, error)

// ReadCPU calls f.
func (f cpuFunc) ReadCPU(time.Time) (CPUReading, error) {
	usage, err := f()
	return CPUReading{Source: "func", Direct: true, Usage: usage}, err
}

// exhausted reports whether the quota was used up in every one of its periods within the span since base.
func (l *CPULevel) exhausted(base *CPULevel, span time.Duration) bool {
	if l.Period <= 0 || span < l.Period || l.Periods <= base.Periods || l.ThrottledPeriods <= base.ThrottledPeriods {
		return false
	}
	periods := l.Periods - base.Periods
	// The kernel counts no periods while the group is idle, so the counted periods must also fill the span.
	return l.ThrottledPeriods-base.ThrottledPeriods >= periods && periods >= uint64(span/l.Period)
}

// validate returns an error if a field of r is invalid.
func (r *CPUReading) validate() error {
	if r.Procs < 0 {
		return fmt.Errorf("stats: %s: procs must be at least 0, got %d", r.Source, r.Procs)
	}
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
