package shedder_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/policytest"
	"github.com/spillway-go/spillway/shedder"
)

// queueing returns a Shedder that is overloaded and admits limit requests at once. Its tick has been taken.
func queueing(t testing.TB, limit, maxQueue int, o shedder.Options) *shedder.Shedder {
	t.Helper()
	o.CPU, o.Sched, o.MinLimit, o.MaxLimit, o.MaxQueue = &fakeCPU{usage: 1}, &schedStub{}, limit, limit, maxQueue
	shed := spillway.Must(shedder.New(&o))
	r := spillway.Request{Arrived: time.Now()}
	ticket, err := shed.Admit(t.Context(), r)
	require.NoError(t, err)
	shed.Done(r, ticket, spillway.Result{Outcome: spillway.Ignored})
	return shed
}

// A crowd are requests in goroutines of their own.
type crowd struct {
	t    *testing.T
	gate *spillway.Gate
	all  sync.WaitGroup

	mu   sync.Mutex
	in   []string // in the order in which they were admitted
	errs map[string]error
	ends map[string]func(spillway.Outcome)
}

func newCrowd(t *testing.T, policies ...spillway.Policy) *crowd {
	t.Helper()
	return &crowd{t: t, gate: spillway.New(policies...), errs: map[string]error{}, ends: map[string]func(spillway.Outcome){}}
}

// enter sends a request and returns when it waits, is admitted or is refused.
func (c *crowd) enter(ctx context.Context, who string, r spillway.Request) {
	c.all.Go(func() {
		permit, err := c.gate.Enter(ctx, r)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.errs[who] = err; err == nil {
			c.in = append(c.in, who)
			c.ends[who] = func(o spillway.Outcome) { permit.Done(o) }
		}
	})
	synctest.Wait()
}

// end ends an admitted request.
func (c *crowd) end(who string) {
	c.mu.Lock()
	end := c.ends[who]
	c.mu.Unlock()
	end(spillway.Success)
	synctest.Wait()
}

func (c *crowd) reason(who string) string {
	if rej := spillway.RejectionOf(c.errs[who]); rej != nil {
		return rej.Reason
	}
	return ""
}

func TestQueueConformance(t *testing.T) {
	o := shedder.Options{CPU: &fakeCPU{usage: 1}, Sched: &schedStub{}, MinLimit: 4, MaxLimit: 4, MaxQueue: 5}
	policytest.Run(t, func() spillway.Policy { return spillway.Must(shedder.New(&o)) }, &policytest.Options{Burst: 24})
}

// The highest priority goes first, and keys of one priority take turns.
func TestQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, queueing(t, 1, 10, shedder.Options{}))
		of := func(key string, p spillway.Priority) spillway.Request { return spillway.Request{Key: key, Priority: p} }
		c.enter(t.Context(), "running", of("", 0))
		c.enter(t.Context(), "batch", of("a", spillway.Sheddable))
		for i := range 3 {
			c.enter(t.Context(), fmt.Sprint("a", i), of("a", 0))
		}
		c.enter(t.Context(), "b0", of("b", 0))
		c.enter(t.Context(), "b1", of("b", 0))
		c.enter(t.Context(), "urgent", of("a", spillway.Critical))
		for i := range 8 {
			c.end(c.in[i])
		}
		c.all.Wait()
		require.Equal(t, []string{"running", "urgent", "a0", "b0", "a1", "b1", "a2", "batch"}, c.in)
	})
}

func TestQueueWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, queueing(t, 1, 100, shedder.Options{Weights: map[string]float64{"b": 2}}))
		c.enter(t.Context(), "running", spillway.Request{})
		for i := range 9 {
			c.enter(t.Context(), fmt.Sprint("a", i), spillway.Request{Key: "a"})
			c.enter(t.Context(), fmt.Sprint("b", i), spillway.Request{Key: "b"})
		}
		n := map[byte]int{}
		for i := range 10 {
			c.end(c.in[i])
			n[c.in[i][0]]++
		}
		require.Equal(t, map[byte]int{'r': 1, 'a': 3, 'b': 6}, n)
		for i := 10; i < 19; i++ {
			c.end(c.in[i])
		}
	})
}

// Every way out of the queue: in turn, too late, ousted, cancelled, refused at the door.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shed := queueing(t, 2, 3, shedder.Options{MaxWait: 100 * time.Millisecond})
		c := newCrowd(t, shed)
		ctx, cancel := context.WithCancel(t.Context())
		for _, who := range []string{"a", "b", "c", "d"} {
			c.enter(t.Context(), who, spillway.Request{Key: "key"})
		}
		c.enter(ctx, "gone", spillway.Request{Key: "key"})
		require.Equal(t, int64(3), shed.Stats().Waiting)
		c.enter(t.Context(), "full", spillway.Request{Key: "key"})
		require.Equal(t, "queue full", c.reason("full"))
		cancel()
		synctest.Wait()
		require.ErrorIs(t, c.errs["gone"], context.Canceled)
		c.enter(t.Context(), "e", spillway.Request{Key: "key"})
		c.enter(t.Context(), "urgent", spillway.Request{Priority: spillway.Critical})
		require.Equal(t, "ousted from queue", c.reason("e"))
		c.enter(t.Context(), "late", spillway.Request{Timeout: -1, Priority: spillway.Critical})
		require.Equal(t, "deadline too near", c.reason("late"))
		require.True(t, spillway.RejectionOf(c.errs["late"]).TooLate)
		time.Sleep(50 * time.Millisecond)
		c.end("a")
		require.Equal(t, []string{"a", "b", "urgent"}, c.in)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, "wait too long", c.reason("c"))
		require.Equal(t, "wait too long", c.reason("d"))
		c.end("b")
		c.end("urgent")
		c.all.Wait()

		s := shed.Stats()
		require.Equal(t, uint64(1), s.Waits.Count)
		require.InDelta(t, 0.05, s.Waits.Sum, 1e-6)
		require.Equal(t, uint64(3), s.RefusedAfter.Count)
		require.InDelta(t, 0.2, s.RefusedAfter.Sum, 1e-6)
		require.Equal(t, []spillway.Refusal{
			{Policy: "shedder", Reason: "queue full", Count: 1}, {Policy: "shedder", Reason: "wait too long", Count: 2},
			{Policy: "shedder", Reason: "deadline too near", Count: 1}, {Policy: "shedder", Reason: "ousted from queue", Count: 1},
		}, s.ByReason)
		require.Equal(t, []int64{0, 0, 1, 1, 5}, []int64{s.Waiting, s.InFlight, s.Waited, s.Cancelled, s.Refused})
		require.Equal(t, []int64{1, 1}, []int64{s.AdmittedCritical, s.RefusedCritical})
	})
}

// A request that another policy refuses after it waited gives its place to the next one.
func TestQueueBehindWhichAnotherPolicyRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shed, strict := queueing(t, 1, 5, shedder.Options{}), &gatetest.Recorder{}
		c := newCrowd(t, shed, strict)
		for _, who := range []string{"running", "a", "b"} {
			c.enter(t.Context(), who, spillway.Request{})
		}
		strict.Refuse(&spillway.Rejection{Policy: "strict", Reason: "on"})
		c.end("running")
		c.all.Wait()
		require.ErrorIs(t, c.errs["a"], spillway.ErrRejected)
		require.ErrorIs(t, c.errs["b"], spillway.ErrRejected)
		s := shed.Stats()
		require.Zero(t, s.InFlight+s.Waiting+s.Refused)
	})
}

// The wait is no latency to policies behind the Shedder.
func TestQueueWaitIsNoLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shed, behind := queueing(t, 1, 100, shedder.Options{MaxWait: time.Hour}), &gatetest.Recorder{}
		gate := spillway.New(shed, behind)
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() {
				permit, err := gate.Enter(t.Context(), spillway.Request{})
				require.NoError(t, err)
				time.Sleep(10 * time.Millisecond)
				permit.Done(spillway.Success)
			})
		}
		all.Wait()
		last, err := gate.Enter(t.Context(), spillway.Request{}) // takes a tick
		require.NoError(t, err)
		last.Done(spillway.Ignored)
		seen := behind.Results()
		require.Len(t, seen, 61)
		require.Zero(t, seen[60].Latency)
		for _, res := range seen[:60] {
			require.Equal(t, 10*time.Millisecond, res.Latency)
		}
		require.Zero(t, shed.Stats().InFlight)
	})
}

// The limit may rise while all wait: a tick lets them in, and so does the kill switch.
func TestQueueFollowsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shed := queueing(t, 1, 10, shedder.Options{MaxWait: time.Minute})
		c := newCrowd(t, shed)
		for i := range 5 {
			c.enter(t.Context(), fmt.Sprint(i), spillway.Request{})
		}
		o := shed.Options()
		o.MaxLimit, o.MinLimit = 3, 3
		require.NoError(t, shed.Tune(o))
		time.Sleep(time.Second)
		c.enter(t.Context(), "tick", spillway.Request{})
		require.Equal(t, int64(3), shed.Stats().InFlight)
		o.Disabled = true
		require.NoError(t, shed.Tune(o))
		time.Sleep(time.Second)
		c.enter(t.Context(), "off", spillway.Request{})
		require.Equal(t, int64(7), shed.Stats().InFlight)
		require.Zero(t, shed.Stats().Waiting)
		c.all.Wait()
	})
}

func TestQueueOptions(t *testing.T) {
	for want, o := range map[string]shedder.Options{
		"shedder: MaxQueue must not be negative, got -1":  {MaxQueue: -1},
		"shedder: MaxWait must be 1ms to 1h, got 1µs":     {MaxWait: time.Microsecond},
		"shedder: MaxWait must be 1ms to 1h, got 1h0m1s":  {MaxWait: time.Hour + time.Second},
		"shedder: MaxWait must be 1ms to 1h, got -1ns":    {MaxWait: -1},
		"shedder: MaxQueue must not be negative, got -16": {MaxQueue: -16, MaxWait: time.Second},
	} {
		_, err := shedder.New(&o)
		require.EqualError(t, err, want)
	}
	off := spillway.Must(shedder.New(nil))
	require.False(t, off.Queues())
	require.EqualError(t, off.Tune(shedder.Options{MaxQueue: 5}), "shedder: Tune: MaxQueue cannot change from or to 0, got 5")
	on := spillway.Must(shedder.New(&shedder.Options{MaxQueue: 5}))
	require.True(t, on.Queues())
	require.Equal(t, 250*time.Millisecond, on.Options().MaxWait)
	require.EqualError(t, on.Tune(shedder.Options{}), "shedder: Tune: MaxQueue cannot change from or to 0, got 0")
	require.NoError(t, on.Tune(shedder.Options{MaxQueue: 7, MaxWait: time.Second}))
	require.Equal(t, 7, on.Options().MaxQueue)
}

// A Gate that may refuse early, before a request is read, does not ask a Shedder whose Admit may block.
func TestQueueIsNotPeekedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, queueing(t, 1, 1, shedder.Options{}))
		c.enter(t.Context(), "running", spillway.Request{})
		require.NoError(t, c.gate.Peek(t.Context(), spillway.Request{}))
		c.end("running")
	})
}

// While there is room, a Shedder with a queue costs no allocation, and neither does a refusal at the door.
func TestQueueAllocatesOnlyForWaiters(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not counted under the race detector: it adds its own")
	}
	now := time.Now()
	enter := func(gate *spillway.Gate, r spillway.Request) func() {
		r.Arrived = now
		return func() {
			p, _ := gate.Enter(context.Background(), r)
			p.DoneAt(now, spillway.Success, 0)
		}
	}
	free := spillway.New(spillway.Must(shedder.New(&shedder.Options{MaxQueue: 10})))
	require.Zero(t, testing.AllocsPerRun(1000, enter(free, spillway.Request{})), "admitted")
	shed := queueing(t, 1, 1, shedder.Options{MaxWait: time.Minute})
	busy := spillway.New(shed)
	running, err := busy.Enter(t.Context(), spillway.Request{})
	require.NoError(t, err)
	var waits sync.WaitGroup
	waits.Go(func() {
		permit, err := busy.Enter(t.Context(), spillway.Request{Key: "a"})
		if err != nil {
			t.Error(err)
		}
		permit.Done(spillway.Success)
	})
	require.Eventually(t, func() bool { return shed.Stats().Waiting == 1 }, time.Minute, time.Millisecond)
	require.Zero(t, testing.AllocsPerRun(1000, enter(busy, spillway.Request{Key: "a"})), "refused: the queue is full")
	require.Zero(t, testing.AllocsPerRun(1000, enter(busy, spillway.Request{Key: "b", Timeout: -1})), "refused: too late")
	running.Done(spillway.Success)
	waits.Wait()
}

// In real time, from many goroutines: the limit and the bound hold, no request is lost, and nothing is left.
func TestQueueStorm(t *testing.T) {
	t.Run("one priority", func(t *testing.T) { storm(t, 1) })
	t.Run("three priorities", func(t *testing.T) { storm(t, 3) }) // the higher ones may exceed the limit
}

func storm(t *testing.T, priorities int) {
	t.Helper()
	const limit, maxQueue, clients, each = 4, 16, 40, 300
	shed := queueing(t, limit, maxQueue, shedder.Options{MaxWait: 20 * time.Millisecond})
	gate, before := spillway.New(shed), runtime.NumGoroutine()
	var mu sync.Mutex
	inside, most, waiting := 0, 0, int64(0)
	var admitted, refused, cancelled int64
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(client), 1))
			for range each {
				ctx, cancel := context.WithCancel(t.Context())
				if rng.IntN(3) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(3000))*time.Microsecond)
				}
				permit, err := gate.Enter(ctx, spillway.Request{Key: fmt.Sprint(client % 7), Priority: spillway.Priority(rng.IntN(priorities))})
				cancel()
				mu.Lock()
				switch {
				case err == nil:
					admitted++
					inside++
					most = max(most, inside)
				case spillway.RejectionOf(err) != nil:
					refused++
				default:
					cancelled++
				}
				waiting = max(waiting, shed.Stats().Waiting)
				mu.Unlock()
				if err != nil {
					continue
				}
				for range rng.IntN(50) {
					runtime.Gosched()
				}
				mu.Lock()
				inside--
				mu.Unlock()
				permit.Done(spillway.Success)
			}
		})
	}
	all.Wait()
	s := shed.Stats()
	t.Logf("admitted %d, of them waited %d; refused %d, cancelled %d; %d waited at once", admitted, s.Waited, refused, cancelled, waiting)
	if priorities == 1 {
		require.LessOrEqual(t, most, limit)
	}
	require.LessOrEqual(t, waiting, int64(maxQueue))
	require.Zero(t, s.InFlight+s.Waiting)
	require.Equal(t, int64(clients*each), admitted+refused+cancelled)
	require.Equal(t, []int64{admitted + 1, refused}, []int64{s.Admitted, s.Refused})
	require.Positive(t, s.Waited)
	require.Equal(t, uint64(s.Waited), s.Waits.Count)
	for range 1000 { // the last goroutines may be about to end
		if runtime.NumGoroutine() > before {
			time.Sleep(time.Millisecond)
		}
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}

// A request that ends wakes the next one however they meet, even if no other request comes.
func TestQueueLosesNoWakeUp(t *testing.T) {
	shed := queueing(t, 1, 10, shedder.Options{MaxWait: time.Minute})
	gate := spillway.New(shed)
	for range 3000 {
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				permit, err := gate.Enter(t.Context(), spillway.Request{})
				if err != nil {
					t.Error("a lost wake-up takes a minute:", err)
				}
				permit.Done(spillway.Success)
			})
		}
		all.Wait()
	}
	require.Zero(t, shed.Stats().RefusedAfter.Count)
	t.Log(shed.Stats().Waited, "waited")
}

func TestFiguresOfTheQueueAreInTheFeedWithAQueueOnly(t *testing.T) {
	for _, c := range []struct{ most, series int }{{0, 0}, {10, 5}} {
		shed := spillway.Must(shedder.New(&shedder.Options{MaxQueue: c.most}))
		series := 0
		for m := range shed.Metrics() {
			switch m.Name {
			case "spillway.shedder.waiting", "spillway.shedder.waited", "spillway.shedder.cancelled", "spillway.shedder.wait":
				series++
			}
		}
		require.Equal(t, c.series, series, "MaxQueue %d", c.most)
	}
}
