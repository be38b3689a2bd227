package stats

import "time"

// A CPUSample says how much CPU is in use, as published by the Sensor of [NewCPU].
type CPUSample struct {
	// Usage is the CPU in use, over the Span that ended at Time, as a fraction of the CPU that this process may use: 0
	// to 1. Values above 1, which a quota allows for moments, are published as 1.
	Usage float64
	// Smoothed is the exponentially weighted moving average of Usage. The first Usage seeds it.
	Smoothed float64
	// Limit is how many CPUs the process may use: the tightest limit that applies. It is 0 if the source does not say.
	Limit float64
	// Procs is how many threads of the process may run at once: runtime.GOMAXPROCS, unless the source says otherwise.
	Procs int
	// Source names what was read: "cgroup v1", "cgroup v2", "host", "process", "func", or the name from the user's own
	// source.
	Source string
	// Level names the limit that Usage is nearest to, such as the path of the control group that has it.
	Level string
	// Time is when Usage was measured. It moves only when there is a new Usage.
	Time time.Time
	// Span is the time that Usage covers: the interval, or longer if no caller asked in between.
	Span time.Duration
	// Throttled is how long threads were stopped within Span because a quota was used up, summed over all CPUs.
	// ThrottledPeriods is the number of the quota's Periods in which that happened, and Period is how long each is. These
	// fields belong to the most throttled level, and are 0 if the source does not know.
	Throttled, Period         time.Duration
	Periods, ThrottledPeriods uint64
	// Samples counts the usages measured so far, Errors the failed readings.
	Samples, Errors uint64
	// Err says why the usage is unknown now: ErrNoReading, or the last reading's failure. The other fields then keep
	// the values of the last reading, at Time.
	Err error
}

func (s CPUSample) figure() (float64, error) { return s.Usage, s.Err }

// addThrottled stores how much l was throttled since base, if that is more than for any level so far.
func (s *CPUSample) addThrottled(l, base *CPULevel) {
	if l.Periods < base.Periods || l.ThrottledPeriods < base.ThrottledPeriods || l.Throttled < base.Throttled {
		return
	}
	periods, throttled := l.Periods-base.Periods, l.ThrottledPeriods-base.ThrottledPeriods
	if s.Periods == 0 || throttled > s.ThrottledPeriods {
		s.Periods, s.ThrottledPeriods, s.Throttled, s.Period = periods, throttled, l.Throttled-base.Throttled, l.Period
	}
}
