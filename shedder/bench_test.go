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

// measure runs one operation, serially and by all processors.
func measure(b *testing.B, one func()) {
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			one()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				one()
			}
		})
	})
}

// through returns an operation that takes a request through a gate of the policies.
func through(r spillway.Request, policies ...spillway.Policy) func() {
	gate := spillway.New(policies...)
	return func() {
		permit, err := gate.Enter(context.Background(), r)
		if err == nil {
			permit.Done(spillway.Success)
		}
	}
}

// inForce returns an overloaded Shedder with plenty of room.
func inForce(b *testing.B) *shedder.Shedder {
	shed, err := shedder.New(&shedder.Options{CPU: &fakeCPU{usage: 1}, Sched: &schedStub{}, MinLimit: 1000, MaxLimit: 1000})
	require.NoError(b, err)
	return shed
}

func BenchmarkGateShedderAdmit(b *testing.B) {
	measure(b, through(spillway.Request{}, spillway.Must(shedder.New(nil))))
}

// BenchmarkGateShedderPriority is a request with a key and a priority while a limit is in force. At the rate of a
// benchmark, one level in many is counted; package level has a benchmark of its parts.
func BenchmarkGateShedderPriority(b *testing.B) {
	measure(b, through(spillway.Request{Key: "tenant-0123456789", Route: "GET /items/{id}", Priority: spillway.Critical}, inForce(b)))
}

// BenchmarkGateDeadlineShedder is BenchmarkGateShedderPriority with a policy of package deadline in front, requests with a
// timeout, and FairRoutes.
func BenchmarkGateDeadlineShedder(b *testing.B) {
	r := spillway.Request{Key: "tenant-0123456789", Route: "GET /items/{id}", Priority: spillway.Critical, Timeout: time.Second}
	one := through(r, spillway.Must(deadline.New(nil)), inForce(b))
	for range 100 { // the latency of the route is known then
		one()
	}
	measure(b, one)
}

func BenchmarkGateShedderRefuse(b *testing.B) {
	measure(b, through(spillway.Request{}, full(b)))
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
	shed := inForce(b)
	measure(b, through(spillway.Request{}, shed))
	require.InDelta(b, 1000, shed.Stats().Limit, 0)
	require.Zero(b, shed.Stats().Refused)
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
