package stats

import (
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"time"
)

// GCOptions configure a GC. The zero GCOptions consist of default values.
type GCOptions struct {
	// Interval is the least time between two readings. If Interval is 0, it is 250 ms. It is at least 1 ms.
	Interval time.Duration
	// Memory makes GC tell a death spiral: Share is the collector's share only while memory is near its limit, and 0
	// otherwise, because a collector that is busy with room to spare does what GOGC has told it. If Memory is nil, the
	// collector's share always counts.
	Memory *Memory
	// Near is the share of the limit from which on memory is near it, in (0, 1]. If Near is 0, it is 0.9.
	Near float64
}

// A GCSample is what share of the CPU the garbage collector takes, as published by a GC.
type GCSample struct {
	// CPU is the share of the process's CPU time (GOMAXPROCS times the time that passed) that the collector took, 0 to 1,
	// work that it did while a CPU was idle included.
	CPU float64
	// Share is CPU, or 0 if there is a GCOptions.Memory that is not near its limit.
	Share float64
	// Time is when that was read.
	Time time.Time
	// Err says why Share is unknown now: ErrNoReading, or what failed. The other fields then are those of Time.
	Err error
}

// A GC measures what share of the CPU the garbage collector takes. The Go runtime counts up to the end of the last collection.
// So CPU is the share between the ends of two collections, and from then on falls until one more has ended, as if there were
// none under way.
//
// It is pulled like a CPU: at most once per interval one of those who ask reads; it has no goroutine and needs no Close. All
// methods may be called concurrently.
type GC struct {
	sample *pulled[GCSample]
	read   func() (gc, total float64, err error)
	memory *Memory
	near   float64

	gc, total  float64   // seconds, as of the last reading that differed
	took, span float64   // by how much they did
	ended      time.Time // when that was
	known      bool
}

// NewGC returns a GC with the options, the defaults if o is nil. It reads nothing yet.
func NewGC(o *GCOptions) (*GC, error) {
	if o == nil {
		o = &GCOptions{}
	}
	interval, err := intervalOf("GC", o.Interval, 250*time.Millisecond)
	if err != nil {
		return nil, err
	}
	near := o.Near
	if near == 0 {
		near = 0.9
	}
	if !(near > 0 && near <= 1) {
		return nil, fmt.Errorf("stats: GC: Near must be in (0, 1], got %v", near)
	}
	return &GC{sample: newPulled(interval, GCSample{Err: ErrNoReading}), read: runtimeGC(), memory: o.Memory, near: near}, nil
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

// Sample returns the collector's share as of now, and reads it if that is due. Times given to Sample come from one clock,
// which may be simulated.
func (g *GC) Sample(now time.Time) GCSample { return *g.sample.get(now, g.refresh) }

// Share returns the collector's share of the CPU, or why it is unknown: a Read for a signal of the shedder.
func (g *GC) Share(now time.Time) (float64, error) {
	s := g.sample.get(now, g.refresh)
	return s.Share, s.Err
}

func (g *GC) refresh(s *GCSample, now time.Time) {
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
		share, err := g.memory.Share(now)
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
