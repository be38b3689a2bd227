package stats

import "time"

// A CPUSample is how much CPU is in use, as published by the Sensor of [NewCPU].
type CPUSample struct {
	// Usage is the CPU in use, over the Span that ended at Time, as a fraction of what this process may use: 0 to 1.
	// What is measured above 1, as a quota allows for moments, is published as 1.
	Usage float64
	// Smoothed is the exponentially weighted moving average of Usage. The first Usage seeds it.
	Smoothed float64
	// Limit is how many CPUs the process may use: the tightest limit that applies. It is 0 if the source does not say.
	Limit float64
	// Source names what was read: "cgroup v1", "cgroup v2", "host", "process", "func", or what the user's own says.
	Source string
	// Level names the limit that Usage is nearest to, such as the path of the control group that has it.
	Level string
	// Time is when Usage was measured. It moves only when there is a new Usage.
	Time time.Time
	// Span is the time that Usage covers: the interval, or longer if no caller asked in between.
	Span time.Duration
	// Throttled is how long threads were stopped within Span because a quota was used up, summed over all CPUs.
	// ThrottledPeriods of Periods say in how many of the quota's periods that happened. They belong to the level in
	// which it happened most, and are 0 if the source does not know.
	Throttled                 time.Duration
	Periods, ThrottledPeriods uint64
	// Samples counts the usages measured so far, Errors the failed readings.
	Samples, Errors uint64
	// Err says why the usage is unknown now: ErrNoReading, or the last reading's failure. The other fields then are
	// those of Time; a failure changes none of them.
	Err error
}

func (s CPUSample) figure() (float64, error) { return s.Usage, s.Err }

// addThrottled notes how much l was throttled since base, if that is more than any level so far.
func (s *CPUSample) addThrottled(l, base *CPULevel) {
	if l.Periods < base.Periods || l.ThrottledPeriods < base.ThrottledPeriods || l.Throttled < base.Throttled {
		return
	}
	periods, throttled := l.Periods-base.Periods, l.ThrottledPeriods-base.ThrottledPeriods
	if s.Periods == 0 || throttled > s.ThrottledPeriods {
		s.Periods, s.ThrottledPeriods, s.Throttled = periods, throttled, l.Throttled-base.Throttled
	}
}
