package stats

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"time"
)

// cpuInterval is the default of CPUOptions.Interval.
const cpuInterval = 250 * time.Millisecond

// CPUOptions configure a sensor of [NewCPU]. The zero CPUOptions consist of default values.
type CPUOptions struct {
	// Source is the source to read. If Source is nil, it is AutoCPU(). A source may serve several sensors.
	Source CPUSource
	// Read returns the CPU usage in place of a Source, as a fraction of the CPU that this process may use: a finite
	// number, at least 0; values above 1 count as 1. If it returns an error or any other number, the usage is unknown. It
	// is never run concurrently with itself. If Read is nil, Source is used.
	Read func() (float64, error)
	// Interval is the least time between two readings. If Interval is 0, it is 250 ms.
	// It is at least 1 ms.
	Interval time.Duration
	// Beta is the weight of the past in Smoothed, per Interval. If Beta is 0, it is 0.95: after a step
	// from idle to full use, Smoothed passes 0.9 after 11.25 s. It is less than 1.
	Beta float64
}

// A cpuMeter measures the CPU usage, relative to the CPU that this process may use.
type cpuMeter struct {
	source   CPUSource
	interval time.Duration
	logBeta  float64 // per interval
	base     map[string]cpuBase
	baseAt   time.Time // when base, or the last direct usage, was read
}

// cpuBase holds a level's counters at the last measurement of Usage.
type cpuBase struct {
	level CPULevel
	at    time.Time
}

// NewCPU returns a Sensor of the CPU usage, relative to the CPU that this process may use, with the options o; nil
// means the defaults. It reads nothing yet. If the source fails, the usage is unknown; that is not an error here.
//
// The Sensor is fresher the more often it is called. Usage is the average since the last reading, however long ago that
// was (Span). After a long Span, Smoothed moves as far as several readings of the same Usage would have moved it. So
// the pattern of calls does not change the smoothing. After an idle minute the first caller gets the average of that
// minute, near 0, and a burst shows one interval later, as it would have with a steady beat. Time in which the machine
// was suspended counts as idle where the clock counts it at all (Linux's does not).
//
// The kernel grants a quota once per period, usually 100 ms, and a busy process uses it up at the start of each period.
// If a span is not a multiple of the period, it contains more or fewer starts, so plain division would yield 0.8 and
// 1.2 in turns. Therefore, if the quota was used up in all periods of a span, Usage is 1, whatever the division says.
//
// A counter that went backwards starts a new baseline and yields no Usage.
func NewCPU(o *CPUOptions) (*Sensor[CPUSample], error) {
	var opts CPUOptions
	if o != nil {
		opts = *o
	}
	switch {
	case opts.Read != nil && opts.Source != nil:
		return nil, fmt.Errorf("stats: CPU: Read must be nil if Source is set, got both, with %T as Source", opts.Source)
	case opts.Read != nil:
		opts.Source = cpuFunc(opts.Read)
	case opts.Source == nil:
		opts.Source = AutoCPU()
	}
	opts.Beta = cmp.Or(opts.Beta, 0.95)
	if !(opts.Beta > 0 && opts.Beta < 1) {
		return nil, fmt.Errorf("stats: CPU: Beta must be more than 0 and less than 1, got %v", opts.Beta)
	}
	c := &cpuMeter{source: opts.Source, logBeta: math.Log(opts.Beta), base: map[string]cpuBase{}}
	s, err := newSensor("CPU", opts.Interval, cpuInterval, CPUSample{Err: ErrNoReading}, c.take)
	if err != nil {
		return nil, err
	}
	c.interval = s.interval
	return s, nil
}

func (c *cpuMeter) take(next *CPUSample, now time.Time) time.Time {
	at := now
	if r, err := c.read(now); err != nil {
		next.Err = err
		next.Errors++
	} else {
		if !r.At.IsZero() {
			at = r.At
		}
		c.measure(next, &r, at)
	}
	return at
}

func (c *cpuMeter) read(now time.Time) (CPUReading, error) {
	r, err := c.source.ReadCPU(now)
	if err == nil {
		err = r.validate()
	}
	return r, err
}

// measure updates next with a reading.
func (c *cpuMeter) measure(next *CPUSample, r *CPUReading, at time.Time) {
	span := at.Sub(c.baseAt)
	if c.baseAt.IsZero() {
		span = c.interval
	}
	fresh := *next
	fresh.Limit, fresh.Level, fresh.Throttled, fresh.Period, fresh.Periods, fresh.ThrottledPeriods = 0, "", 0, 0, 0, 0
	if fresh.Procs = r.Procs; fresh.Procs == 0 {
		fresh.Procs = runtime.GOMAXPROCS(0)
	}
	usage, ok := r.Usage, r.Direct
	if !r.Direct {
		usage, ok = c.compare(&fresh, r.Levels, at)
	}
	c.baseAt = at
	next.Err = nil
	switch {
	case ok && span > 0:
		fresh.Source, fresh.Err = r.Source, nil
		fresh.Usage, fresh.Span, fresh.Time = min(usage, 1), span, at
		fresh.Samples++
		fresh.Smoothed = c.smooth(&fresh, span)
		*next = fresh
	case next.Samples == 0:
		next.Source, next.Limit, next.Err = r.Source, fresh.Limit, ErrNoReading
	}
}

// smooth is the EWMA over as many intervals as span holds.
func (c *cpuMeter) smooth(s *CPUSample, span time.Duration) float64 {
	if s.Samples == 1 {
		return s.Usage
	}
	keep := math.Exp(c.logBeta * float64(span) / float64(c.interval))
	mean := s.Usage + keep*(s.Smoothed-s.Usage)
	return max(0, min(mean, 1))
}

// compare returns the greatest usage of the levels since their last reading, and whether there was one.
func (c *cpuMeter) compare(s *CPUSample, levels []CPULevel, at time.Time) (usage float64, ok bool) {
	for i := range levels {
		l := levels[i]
		if s.Limit == 0 || l.Limit < s.Limit {
			s.Limit = l.Limit
		}
		base, known := c.base[l.Name]
		c.base[l.Name] = cpuBase{level: l, at: at}
		span := at.Sub(base.at)
		if !known || l.Used < base.level.Used || span <= 0 {
			continue
		}
		u := float64(l.Used-base.level.Used) / (float64(span) * l.Limit)
		if l.exhausted(&base.level, span) {
			u = max(u, 1)
		}
		if !ok || u > usage {
			usage, ok, s.Level = u, true, l.Name
		}
		s.addThrottled(&l, &base.level)
	}
	if len(c.base) > len(levels) {
		for name, base := range c.base {
			if !base.at.Equal(at) {
				delete(c.base, name)
			}
		}
	}
	return usage, ok
}
