package stats

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"time"
)

// GCOptions configure a sensor of [NewGC]. The zero GCOptions consist of default values.
type GCOptions struct {
	// Interval is the least time between two readings. If Interval is 0, it is 250 ms. It is at least 1 ms.
	Interval time.Duration
	// Memory, a sensor of [NewMemory], lets Share show a death spiral: Share is the collector's share only while memory
	// is near its limit, and 0 otherwise, because with GOGC the collector may be busy even when there is plenty of
	// room. If Memory is nil, the collector's share always counts.
	Memory *Sensor[MemorySample]
	// Near is the share of the limit at which memory counts as near the limit, in (0, 1]. If Near is 0, it is 0.9.
	Near float64
}

// A GCSample says what share of the CPU the garbage collector takes, as published by the Sensor of [NewGC].
type GCSample struct {
	// CPU is the share of the process's CPU time (GOMAXPROCS times the time that passed) that the collector took, 0 to
	// 1. This includes work that it did while a CPU was idle.
	CPU float64
	// Share is CPU, or 0 if GCOptions.Memory is set and memory is not near its limit.
	Share float64
	// Time is when that was read.
	Time time.Time
	// Err says why Share is unknown now: ErrNoReading, or the failure. The other fields then keep the values of the
	// last reading, at Time.
	Err error
}

func (s GCSample) figure() (float64, error) { return s.Share, s.Err }

// A gcMeter measures what share of the CPU the garbage collector takes.
type gcMeter struct {
	read   func() (gc, total float64, err error)
	memory *Sensor[MemorySample]
	near   float64

	gc, total  float64   // seconds, as of the last reading that differed
	took, span float64   // by how much they did
	ended      time.Time // when that was
	known      bool
}

// NewGC returns a Sensor of the share of the CPU that the garbage collector takes, with the options o; nil means the
// defaults. It reads nothing yet. The Go runtime counts up to the end of the last collection. So CPU is the share between the
// ends of two collections. Afterwards it falls until the next collection ends, as if none were running.
func NewGC(o *GCOptions) (*Sensor[GCSample], error) {
	if o == nil {
		o = &GCOptions{}
	}
	near := cmp.Or(o.Near, 0.9)
	if !(near > 0 && near <= 1) {
		return nil, fmt.Errorf("stats: GC: Near must be in (0, 1], got %v", near)
	}
	return newGC(o.Interval, &gcMeter{read: runtimeGC(), memory: o.Memory, near: near})
}

func newGC(interval time.Duration, g *gcMeter) (*Sensor[GCSample], error) {
	return newSensor("GC", interval, 250*time.Millisecond, GCSample{Err: ErrNoReading}, g.take)
}

// runtimeGC returns a reader of the Go runtime's metrics that reuses its memory. It reads seconds of CPU time.
func runtimeGC() func() (gc, total float64, err error) {
	sample := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/total:cpu-seconds"}}
	return func() (gc, total float64, err error) {
		metrics.Read(sample)
		for i := range sample {
			if sample[i].Value.Kind() != metrics.KindFloat64 {
				return 0, 0, fmt.Errorf("stats: GC: this Go runtime has no %s", sample[i].Name)
			}
		}
		return sample[0].Value.Float64(), sample[1].Value.Float64(), nil
	}
}

func (g *gcMeter) take(s *GCSample, now time.Time) time.Time {
	g.measure(s, now)
	return now
}

func (g *gcMeter) measure(s *GCSample, now time.Time) {
	gc, total, err := g.read()
	if err != nil {
		s.Err = err
		return
	}
	took, span := gc-g.gc, total-g.total
	switch {
	case !g.known || took < 0 || span < 0: // there is nothing to compare with
		g.known, g.took, g.span, g.gc, g.total, g.ended = true, 0, 0, gc, total, now
		s.Err = ErrNoReading
		return
	case span > 0:
		g.took, g.span, g.gc, g.total, g.ended = took, span, gc, total, now
	}
	since := max(now.Sub(g.ended).Seconds(), 0) * float64(runtime.GOMAXPROCS(0))
	next := GCSample{Time: now}
	if g.span+since > 0 {
		next.CPU = math.Min(g.took/(g.span+since), 1)
	}
	next.Share = next.CPU
	if g.memory != nil {
		share, err := g.memory.Read(now)
		if err != nil {
			s.Err = err
			return
		}
		if share < g.near {
			next.Share = 0
		}
	}
	*s = next
}
