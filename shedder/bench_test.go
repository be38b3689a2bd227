package shedder_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/deadline"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

var (
	sinkTime     time.Time
	sinkDuration time.Duration
)

// BenchmarkTwoClockReads is what the benchmarks below are compared with: time.Now when a request comes and when it goes.
func BenchmarkTwoClockReads(b *testing.B) {
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			start := time.Now()
			sinkTime = time.Now()
			sinkDuration = sinkTime.Sub(start)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			var d time.Duration
			for pb.Next() {
				start := time.Now()
				end := time.Now()
				d += end.Sub(start)
			}
			runtime.KeepAlive(d)
		})
	})
}

func BenchmarkGateShedderAdmit(b *testing.B) {
	gate := spillway.New(spillway.Must(shedder.New(nil)))
	admit := func() {
		permit, err := gate.Enter(context.Background(), spillway.Request{})
		if err == nil {
			permit.Done(spillway.Success)
		}
	}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			admit()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				admit()
			}
		})
	})
}

// BenchmarkGateShedderPriority is a request with a key and a priority while a limit is in force. At the rate of a
// benchmark, one level in many is counted; package level has a benchmark of its parts.
func BenchmarkGateShedderPriority(b *testing.B) {
	shed := spillway.Must(shedder.New(&shedder.Options{CPU: &fakeCPU{usage: 1}, Sched: &schedStub{}, MinLimit: 1000, MaxLimit: 1000}))
	gate := spillway.New(shed)
	r := spillway.Request{Key: "tenant-0123456789", Route: "GET /items/{id}", Priority: spillway.Critical}
	admit := func(r spillway.Request) {
		permit, err := gate.Enter(context.Background(), r)
		if err == nil {
			permit.Done(spillway.Success)
		}
	}
	admit(r) // the first tick
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			admit(r)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				admit(r)
			}
		})
	})
}

// BenchmarkGateDeadlineShedder is BenchmarkGateShedderPriority with a policy of package deadline in front, and requests with
// a timeout.
func BenchmarkGateDeadlineShedder(b *testing.B) {
	shed := spillway.Must(shedder.New(&shedder.Options{CPU: &fakeCPU{usage: 1}, Sched: &schedStub{}, MinLimit: 1000, MaxLimit: 1000}))
	late := spillway.Must(deadline.New(nil))
	gate := spillway.New(late, shed)
	r := spillway.Request{Key: "tenant-0123456789", Route: "GET /items/{id}", Priority: spillway.Critical, Timeout: time.Second}
	admit := func(r spillway.Request) {
		permit, err := gate.Enter(context.Background(), r)
		if err == nil {
			permit.Done(spillway.Success)
		}
	}
	for range 100 {
		admit(r)
	}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			admit(r)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				admit(r)
			}
		})
	})
}

func BenchmarkGateShedderRefuse(b *testing.B) {
	gate := spillway.New(full(b))
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = gate.Enter(context.Background(), spillway.Request{})
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = gate.Enter(context.Background(), spillway.Request{})
			}
		})
	})
}

// BenchmarkGateShedderQueue is a request for which there is room, and one that is refused because its turn comes too late.
func BenchmarkGateShedderQueue(b *testing.B) {
	room := spillway.New(spillway.Must(shedder.New(&shedder.Options{MaxQueue: 100})))
	full := spillway.New(queueing(b, 1, 1, shedder.Options{}))
	running, err := full.Enter(b.Context(), spillway.Request{})
	require.NoError(b, err)
	late := spillway.Request{Timeout: -1} // it does not wait, whatever the queue
	for name, gate := range map[string]*spillway.Gate{"admit": room, "refuse": full} {
		ask := func() {
			permit, err := gate.Enter(context.Background(), late)
			if err == nil {
				permit.Done(spillway.Success)
			}
		}
		b.Run(name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ask()
				}
			})
		})
	}
	running.Done(spillway.Success)
}

// BenchmarkGateShedderOverloaded is what an admitted request pays while the limit is in force and has room.
func BenchmarkGateShedderOverloaded(b *testing.B) {
	for _, parallel := range []bool{false, true} {
		b.Run(map[bool]string{false: "serial", true: "parallel"}[parallel], func(b *testing.B) {
			shed := spillway.Must(shedder.New(&shedder.Options{
				CPU: &fakeCPU{usage: 1}, Sched: &schedStub{}, MinLimit: 1000, MaxLimit: 1000,
			}))
			gate := spillway.New(shed)
			admit := func() {
				permit, err := gate.Enter(context.Background(), spillway.Request{})
				if err == nil {
					permit.Done(spillway.Success)
				}
			}
			admit() // the first tick
			b.ReportAllocs()
			if parallel {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						admit()
					}
				})
			} else {
				for b.Loop() {
					admit()
				}
			}
			s := shed.Stats()
			require.InDelta(b, 1000, s.Limit, 0)
			require.Zero(b, s.Refused)
		})
	}
}

// full returns an overloaded Shedder with no room left.
func full(b testing.TB) *shedder.Shedder {
	hot := fakeCPU{usage: 1}
	shed, err := shedder.New(&shedder.Options{CPU: &hot, MaxLimit: 1})
	require.NoError(b, err)
	for i := range 2 {
		_, err = shed.Admit(context.Background(), spillway.Request{Arrived: time.Now().Add(time.Duration(i) * time.Second / 2)})
	}
	require.ErrorIs(b, err, spillway.ErrRejected)
	return shed
}

// fakeCPU says what it is told.
type fakeCPU struct {
	usage, smoothed float64
	err             error
}

func (f *fakeCPU) Sample(now time.Time) stats.CPUSample {
	return stats.CPUSample{Usage: f.usage, Smoothed: max(f.smoothed, f.usage), Time: now, Samples: 1, Err: f.err, Limit: 1}
}

// BenchmarkTick is what one request in 20 ms pays for all others: all sensors and the control law. Every tick also reads the
// CPU here, which in real time falls due every 250 ms: cpu=off leaves that out.
func BenchmarkTick(b *testing.B) {
	for name, o := range map[string]shedder.Options{"cpu=on": {}, "cpu=off": {CPU: &fakeCPU{usage: 0.5}}} {
		b.Run(name, func(b *testing.B) {
			shed := spillway.Must(shedder.New(&o))
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(20 * time.Millisecond)
				ticket, err := shed.Admit(context.Background(), spillway.Request{Arrived: now})
				if err == nil {
					shed.Done(spillway.Request{Arrived: now}, ticket, spillway.Result{Outcome: spillway.Success, Latency: time.Millisecond})
				}
			}
		})
	}
}
