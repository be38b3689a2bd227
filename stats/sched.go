package stats

import (
	"cmp"
	"fmt"
	"math"
	"runtime/metrics"
	"time"
)

// SchedLatencyOptions configure a sensor of [NewSchedLatency]. The zero SchedLatencyOptions consist of default values.
type SchedLatencyOptions struct {
	// Interval is the least time between two readings. If Interval is 0, it is 100 ms.
	// It is at least 1 ms.
	Interval time.Duration
	// Quantile is the quantile that is published as Value. If Quantile is 0, it is 0.99. It must be less than 1.
	Quantile float64
	// Read returns a cumulative histogram of waits, in seconds. If Read is nil, the Go runtime's
	// /sched/latencies:seconds is read. The histogram is not kept: Read may return the same one again with new counts.
	// Read is never run concurrently with itself.
	Read func() (*metrics.Float64Histogram, error)
}

// A SchedSample says how long goroutines that were ready to run waited for a processor, as published by the Sensor of
// [NewSchedLatency].
type SchedSample struct {
	// Value is the chosen quantile, by default p99, of the waits that ended within Span. Median is the median, and Mean
	// is an estimate of the mean. All are interpolated within the runtime's buckets, which are up to a quarter wide.
	// All are 0 if Count is 0.
	Value, Median, Mean time.Duration
	// Count is the number of these waits. The Go runtime measures about one in eight, so there may be few, and Value
	// then is close to the greatest. If Count is 0, no wait ended: the process was idle, or none of its goroutines got
	// a processor.
	Count uint64
	// Time is when the waits were read, and Span the time they cover: the interval, or longer if no caller asked in between.
	Time time.Time
	Span time.Duration
	// Samples counts the readings that yielded a Value, Errors those that failed.
	Samples, Errors uint64
	// Err says why the latency is unknown now: ErrNoReading, or the last reading's failure. The other fields then keep
	// the values of the last reading, at Time.
	Err error
}

func (s SchedSample) figure() (float64, error) { return s.Value.Seconds(), s.Err }

// A schedMeter measures how long the goroutines of this process wait for a processor.
type schedMeter struct {
	quantile float64
	read     func() (*metrics.Float64Histogram, error)

	at   time.Time // of prev
	prev []uint64  // counts of the last reading
	diff []uint64  // counts since then
}

// NewSchedLatency returns a Sensor of how long the goroutines of this process wait for a processor, with the options o;
// nil means the defaults. It reads nothing yet. Long waits show a CPU overload within one interval, long before a
// smoothed CPU usage does. A sample is the difference between two readings of the Go scheduler's latency histogram.
func NewSchedLatency(o *SchedLatencyOptions) (*Sensor[SchedSample], error) {
	var opts SchedLatencyOptions
	if o != nil {
		opts = *o
	}
	opts.Quantile = cmp.Or(opts.Quantile, 0.99)
	if opts.Read == nil {
		opts.Read = runtimeLatencies()
	}
	if !(opts.Quantile > 0 && opts.Quantile < 1) {
		return nil, fmt.Errorf("stats: SchedLatency: Quantile must be more than 0 and less than 1, got %v", opts.Quantile)
	}
	s := &schedMeter{quantile: opts.Quantile, read: opts.Read}
	return newSensor("SchedLatency", opts.Interval, 100*time.Millisecond, SchedSample{Err: ErrNoReading}, s.take)
}

// runtimeLatencies returns a reader of the Go runtime's histogram that reuses its memory.
func runtimeLatencies() func() (*metrics.Float64Histogram, error) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	return func() (*metrics.Float64Histogram, error) {
		metrics.Read(sample)
		if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
			return nil, fmt.Errorf("stats: SchedLatency: this Go runtime has no histogram %s", sample[0].Name)
		}
		return sample[0].Value.Float64Histogram(), nil
	}
}

func (s *schedMeter) take(next *SchedSample, now time.Time) time.Time {
	hist, err := s.read()
	if err == nil && len(hist.Buckets) != len(hist.Counts)+1 {
		err = fmt.Errorf("stats: SchedLatency: %d buckets need %d bounds, got %d",
			len(hist.Counts), len(hist.Counts)+1, len(hist.Buckets))
	}
	if err != nil {
		next.Err = err
		next.Errors++
	} else {
		s.measure(next, hist, now)
	}
	return now
}

// measure updates next with a reading.
func (s *schedMeter) measure(next *SchedSample, hist *metrics.Float64Histogram, now time.Time) {
	count, ok := s.subtract(hist.Counts)
	span := now.Sub(s.at)
	s.at = now
	if next.Err = nil; !ok || span <= 0 {
		if next.Samples == 0 {
			next.Err = ErrNoReading
		}
		return
	}
	next.Count, next.Time, next.Span = count, now, span
	next.Samples++
	next.Value = quantileOf(hist.Buckets, s.diff, count, s.quantile)
	next.Median = quantileOf(hist.Buckets, s.diff, count, 0.5)
	next.Mean = meanOf(hist.Buckets, s.diff, count)
}

// subtract puts the counts since the last reading into diff, and returns their sum. It is not ok if there is no earlier
// reading, or a count went backwards.
func (s *schedMeter) subtract(counts []uint64) (sum uint64, ok bool) {
	ok = len(s.prev) == len(counts)
	if !ok {
		s.prev, s.diff = make([]uint64, len(counts)), make([]uint64, len(counts))
	}
	for i, n := range counts {
		ok = ok && n >= s.prev[i]
		s.diff[i] = n - s.prev[i]
		sum += s.diff[i]
	}
	copy(s.prev, counts)
	return sum, ok
}

// quantileOf returns the q-quantile of count values in buckets, interpolated within its bucket.
func quantileOf(bounds []float64, counts []uint64, count uint64, q float64) time.Duration {
	if count == 0 {
		return 0
	}
	rank := q * float64(count)
	below := 0.0
	last := 0
	for i, n := range counts {
		if n == 0 {
			continue
		}
		last = i
		if below+float64(n) >= rank {
			lo, hi := finite(bounds, i)
			return seconds(lo + (hi-lo)*(rank-below)/float64(n))
		}
		below += float64(n)
	}
	_, hi := finite(bounds, last)
	return seconds(hi)
}

// meanOf returns the mean of values in buckets, where each value counts as the middle of its bucket.
func meanOf(bounds []float64, counts []uint64, count uint64) time.Duration {
	if count == 0 {
		return 0
	}
	sum := 0.0
	for i, n := range counts {
		if n > 0 {
			lo, hi := finite(bounds, i)
			sum += (lo + hi) / 2 * float64(n)
		}
	}
	return seconds(sum / float64(count))
}

// finite returns the bounds of bucket i. An infinite bound is replaced by the other one.
func finite(bounds []float64, i int) (lo, hi float64) {
	lo, hi = bounds[i], bounds[i+1]
	if math.IsInf(lo, -1) {
		lo = min(0, hi)
	}
	if math.IsInf(hi, 1) {
		hi = lo
	}
	return lo, hi
}

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0)*float64(time.Second), math.MaxInt64/2))
}
