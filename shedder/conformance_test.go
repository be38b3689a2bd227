package shedder_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/policytest"
	"github.com/spillway-go/spillway/shedder"
)

func TestConformance(t *testing.T) {
	for name, o := range map[string]shedder.Options{
		// What was learnt from few requests is less than the limit of a new Shedder, which has none: MinLimit makes them equal.
		"calm":       {CPU: &fakeCPU{}, Sched: &schedStub{}, MinLimit: 16},
		"overloaded": {CPU: &fakeCPU{usage: 1}, Sched: &schedStub{}, MinLimit: 4, MaxLimit: 4},
		"routes":     {CPU: &fakeCPU{usage: 1}, Sched: &schedStub{}, MinLimit: 4, MaxLimit: 4, FairRoutes: true},
		"letter":     {CPU: &fakeCPU{usage: 1}, Sched: &schedStub{}, CPUOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			if race.Enabled && o.CPUOnly {
				t.Skip("requests take the path of the Shedder that is overloaded: only the law differs, which has one goroutine")
			}
			policytest.Run(t, func() spillway.Policy { return spillway.Must(shedder.New(&o)) }, nil)
		})
	}
}

func TestThroughAGatePanicAndSecondDoneLeaveNothingInFlight(t *testing.T) {
	shed := spillway.Must(shedder.New(nil))
	gate := spillway.New(shed)
	require.Panics(t, func() {
		_ = spillway.Do(context.Background(), gate, spillway.Request{}, func(context.Context) error { panic("handler") })
	})
	require.Zero(t, shed.Stats().InFlight)
	permit, err := gate.Enter(context.Background(), spillway.Request{})
	require.NoError(t, err)
	permit.Done(spillway.Success)
	permit.Done(spillway.Failure)
	require.Zero(t, shed.Stats().InFlight)
}

func TestOwnsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 1000 {
		gate := spillway.New(spillway.Must(shedder.New(nil)))
		permit, err := gate.Enter(context.Background(), spillway.Request{})
		require.NoError(t, err)
		permit.Done(spillway.Success)
	}
	for range 1000 { // the files of sensors are closed by a goroutine of the runtime, which counts while it does that
		if runtime.NumGoroutine() > before {
			time.Sleep(time.Millisecond)
		}
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}

// The limit holds whatever the interleaving: a storm of arrivals on a shedder with eight places, under -race.
func TestStormNeverExceedsTheLimit(t *testing.T) {
	o := &shedder.Options{CPU: &fakeCPU{usage: 1}, Sched: &schedStub{}, MinLimit: 8, MaxLimit: 8}
	shed := spillway.Must(shedder.New(o))
	gate := spillway.New(shed)
	first, err := gate.Enter(context.Background(), spillway.Request{}) // takes the tick that finds the CPU hot
	require.NoError(t, err)
	first.Done(spillway.Ignored)
	var wg sync.WaitGroup
	var mu sync.Mutex
	inside, most := 0, 0
	for range 32 {
		wg.Go(func() {
			for range 2000 {
				permit, err := gate.Enter(context.Background(), spillway.Request{})
				if err != nil {
					continue
				}
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				runtime.Gosched()
				mu.Lock()
				inside--
				mu.Unlock()
				permit.Done(spillway.Success)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most, 8)
	s := gate.Stats()
	require.Zero(t, shed.Stats().InFlight)
	require.Equal(t, int64(32*2000+1), s.Admitted+s.Refused)
}

func FuzzRandomOrders(f *testing.F) {
	f.Add(uint64(1), uint16(200))
	f.Add(uint64(7), uint16(3000))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		rng := rand.New(rand.NewPCG(seed, 0))
		cpu, sched := &fakeCPU{}, &schedStub{}
		shed := spillway.Must(shedder.New(&shedder.Options{CPU: cpu, Sched: sched, MinLimit: 2}))
		now := time.Unix(0, 0)
		type job struct {
			r spillway.Request
			t spillway.Ticket
		}
		var jobs []job
		end := func(i int) {
			j := jobs[i]
			jobs = append(jobs[:i], jobs[i+1:]...)
			shed.Done(j.r, j.t, spillway.Result{Outcome: spillway.Outcome(rng.IntN(5)), Latency: now.Sub(j.r.Arrived)})
		}
		for range steps {
			now = now.Add(time.Duration(rng.Int64N(int64(30 * time.Millisecond))))
			cpu.usage, sched.wait = rng.Float64(), time.Duration(rng.Int64N(int64(200*time.Millisecond)))
			r := spillway.Request{Arrived: now, Priority: spillway.Priority(rng.IntN(11) - 5)}
			if ticket, err := shed.Admit(context.Background(), r); err == nil {
				jobs = append(jobs, job{r, ticket})
			}
			if len(jobs) > 0 && rng.IntN(3) > 0 {
				end(rng.IntN(len(jobs)))
			}
			require.Equal(t, int64(len(jobs)), shed.Stats().InFlight)
		}
		for len(jobs) > 0 {
			end(0)
		}
		require.Zero(t, shed.Stats().InFlight)
	})
}

func TestAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not counted under the race detector: it adds its own")
	}
	free := spillway.New(spillway.Must(shedder.New(nil)))
	now := time.Now()
	enter := func(gate *spillway.Gate) func() {
		return func() {
			p, _ := gate.Enter(context.Background(), spillway.Request{Arrived: now})
			p.DoneAt(now, spillway.Success, 0)
		}
	}
	require.Zero(t, testing.AllocsPerRun(1000, enter(free)), "admitted")
	require.Zero(t, testing.AllocsPerRun(1000, enter(spillway.New(full(t)))), "refused")
}
