package limiter

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/stats"
)

func newQueue(t testing.TB, o Queue) *queue {
	t.Helper()
	q, err := New(o)
	require.NoError(t, err)
	return q.(*queue)
}

// A line notes who gets in, in order.
type line struct {
	t    *testing.T
	q    *queue
	mu   sync.Mutex
	in   []string
	errs map[string]error
	all  sync.WaitGroup
}

func newLine(t *testing.T, q *queue) *line { return &line{t: t, q: q, errs: map[string]error{}} }

// join has somebody acquire, and returns when it waits or is through.
func (l *line) join(ctx context.Context, who string, n int, p spillway.Priority) {
	l.ask(ctx, who, spillway.Request{Cost: n, Priority: p})
}

func (l *line) ask(ctx context.Context, who string, r spillway.Request) {
	r.Arrived = time.Now()
	l.all.Go(func() {
		_, err := l.q.Admit(ctx, r)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.errs[who] = err; err == nil {
			l.in = append(l.in, who)
		}
	})
	synctest.Wait()
}

func (l *line) reason(who string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rej *spillway.Rejection
	if errors.As(l.errs[who], &rej) {
		return rej.Reason
	}
	return ""
}

func TestQueueOrders(t *testing.T) {
	for order, want := range map[Order][]string{
		FIFO: {"running", "urgent 1", "urgent 2", "a", "b", "c", "batch"},
		LIFO: {"running", "urgent 2", "urgent 1", "c", "b", "a", "batch"},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, Queue{Limit: 1, MaxQueue: 10, Order: order})
			l := newLine(t, q)
			ctx := t.Context()
			l.join(ctx, "running", 1, spillway.Normal)
			l.join(ctx, "batch", 1, spillway.Sheddable)
			l.join(ctx, "a", 1, spillway.Normal)
			l.join(ctx, "urgent 1", 1, spillway.Critical)
			l.join(ctx, "b", 1, spillway.Normal)
			l.join(ctx, "c", 1, spillway.Normal)
			l.join(ctx, "urgent 2", 1, spillway.Critical)
			for range want {
				q.Release(1)
				synctest.Wait()
			}
			l.all.Wait()
			require.Equal(t, want, l.in)
			require.Equal(t, Stats{Name: "queue", Admitted: 7, Waited: 6}, countsOf(q))
		})
	}
}

// A key with many requests delays a key with one by one turn. On a full queue it makes room for it.
func TestQueueFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Queue{Limit: 1, MaxQueue: 4, Order: Fair})
		l := newLine(t, q)
		ask := func(key, who string, timeout time.Duration) {
			l.ask(t.Context(), who, spillway.Request{Key: key, Timeout: timeout})
		}
		ask("heavy", "running", 0)
		for _, who := range []string{"h1", "h2", "h3", "h4"} {
			ask("heavy", who, 0)
		}
		ask("heavy", "h5", 0)
		require.Equal(t, "queue full", l.reason("h5"))
		ask("light", "l1", 0)
		require.Equal(t, "ousted from queue", l.reason("h4"), "the newest of the key with the most")
		for range 4 {
			time.Sleep(20 * time.Millisecond)
			q.Release(1)
			synctest.Wait()
		}
		require.Equal(t, []string{"running", "h1", "l1", "h2", "h3"}, l.in)

		ask("light", "l2", 0)
		ask("light", "late", 30*time.Millisecond)
		require.Equal(t, "deadline too near", l.reason("late"), "20 ms each, and it is the second")
		ask("other", "in time", 50*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		l.ask(ctx, "hurried", spillway.Request{Key: "hurried"})
		require.Equal(t, "deadline too near", l.reason("hurried"), "the deadline of the context")
		for range 3 {
			q.Release(1)
			synctest.Wait()
		}
		l.all.Wait()
		require.Equal(t, []string{"l2", "in time"}, l.in[5:])
		require.Equal(t, Stats{Name: "queue", Admitted: 7, Waited: 6, Refused: 4, ByReason: []spillway.Refusal{
			{Policy: "queue", Reason: "queue full", Count: 1}, {Policy: "queue", Reason: "deadline too near", Count: 2},
			{Policy: "queue", Reason: "ousted from queue", Count: 1},
		}}, countsOf(q))
		var rej *spillway.Rejection
		require.ErrorAs(t, l.errs["late"], &rej)
		require.True(t, rej.TooLate)
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Queue{Limit: 2, MaxQueue: 2, MaxWait: 50 * time.Millisecond})
		l := newLine(t, q)
		ctx := t.Context()
		for _, who := range []string{"a", "b", "c", "d", "e"} {
			l.join(ctx, who, 1, spillway.Normal)
		}
		require.Equal(t, "queue full", l.reason("e"), "two run, two wait, the next is refused at once")
		l.join(ctx, "urgent", 1, spillway.Critical)
		require.Equal(t, "ousted from queue", l.reason("d"), "the last to come of the lowest priority")
		l.join(ctx, "batch", 1, spillway.Sheddable)
		require.Equal(t, "queue full", l.reason("batch"))
		q.Release(1)
		synctest.Wait()
		require.Equal(t, []string{"a", "b", "urgent"}, l.in)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, "wait too long", l.reason("c"))
		var rej *spillway.Rejection
		require.ErrorAs(t, l.errs["c"], &rej)
		require.False(t, rej.OverQuota)
		require.Equal(t, Stats{Name: "queue", InFlight: 2, Admitted: 3, Waited: 1, Refused: 4, ByReason: []spillway.Refusal{
			{Policy: "queue", Reason: "queue full", Count: 2}, {Policy: "queue", Reason: "wait too long", Count: 1}, {Policy: "queue", Reason: "ousted from queue", Count: 1},
		}}, countsOf(q))
	})
}

// A large one is not passed by small ones for ever.
func TestQueueServesLargeCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Queue{Limit: 3, MaxQueue: 10})
		l := newLine(t, q)
		l.join(t.Context(), "two", 2, spillway.Normal)
		l.join(t.Context(), "three", 3, spillway.Normal)
		l.join(t.Context(), "one", 1, spillway.Normal)
		require.Equal(t, []string{"two"}, l.in, "one would fit, but it is the turn of three")
		require.False(t, q.Allow())
		require.Equal(t, State{Limit: 3}, q.PeekAt(readClock()))
		l.join(t.Context(), "urgent", 1, spillway.Critical)
		require.Equal(t, []string{"two", "urgent"}, l.in, "a higher priority goes first")
		q.Release(3)
		synctest.Wait()
		require.Equal(t, []string{"two", "urgent", "three"}, l.in)
		q.Release(3)
		l.all.Wait()
		require.Equal(t, "one", l.in[3])
		q.Release(1)
		require.True(t, q.Idle(start))
		require.PanicsWithValue(t, "limiter: Queue: released more than was acquired", func() { q.Release(1) })
		require.Panics(t, func() { q.Release(-1) })
	})
}

func TestQueueCancelLeaksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Queue{Limit: 1, MaxQueue: 3})
		l := newLine(t, q)
		ctx, cancel := context.WithCancel(t.Context())
		l.join(t.Context(), "running", 1, spillway.Normal)
		l.join(ctx, "first", 1, spillway.Normal)
		l.join(t.Context(), "second", 1, spillway.Normal)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, l.errs["first"], context.Canceled)
		require.Equal(t, int64(1), q.Stats().Waiting, "its place in the queue is free")

		// Granted and cancelled at the same moment: it is gone, so the next gets the place.
		ctx, cancel = context.WithCancel(t.Context())
		l.join(ctx, "third", 1, spillway.Critical)
		cancel()
		q.Release(1)
		synctest.Wait()
		require.ErrorIs(t, l.errs["third"], context.Canceled)
		require.Equal(t, []string{"running", "second"}, l.in)
		require.Equal(t, int64(1), q.Stats().InFlight)
		require.Equal(t, int64(2), q.Stats().Cancelled)
		require.ErrorIs(t, q.Wait(ctx, 1), context.Canceled)
		_, err := q.Admit(ctx, spillway.Request{Arrived: time.Now()})
		require.ErrorIs(t, err, context.Canceled, "it would have to wait")
		q.Release(1)
		require.True(t, q.Idle(start))
	})
}

func TestQueueIsResizedWhileInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Queue{Limit: 3, MaxQueue: 9})
		l := newLine(t, q)
		for _, who := range []string{"a", "b", "c", "d", "e", "f"} {
			l.join(t.Context(), who, 1, spillway.Normal)
		}
		require.NoError(t, setLimit(q, 5))
		synctest.Wait()
		require.Equal(t, []string{"a", "b", "c", "d", "e"}, slices.Sorted(slices.Values(l.in)), "there is room at once")
		l.join(t.Context(), "large", 4, spillway.Normal)
		require.NoError(t, setLimit(q, 2), "which does not wait")
		synctest.Wait()
		require.Equal(t, "cost exceeds limit", l.reason("large"), "it can never run")
		q.Release(3)
		synctest.Wait()
		require.Len(t, l.in, 5)
		q.Release(1)
		synctest.Wait()
		require.Len(t, l.in, 6)
		require.EqualError(t, setLimit(q, 0), "limiter: Queue: Limit must be at least 1, got 0")
		var cost *CostError
		require.ErrorAs(t, q.Wait(t.Context(), 3), &cost)
		require.Equal(t, 2, cost.Max)
		require.ErrorAs(t, q.Wait(t.Context(), -1), &cost)
		require.Equal(t, int64(3), q.Stats().Impossible)
	})
}

// A queue that stands serves the last to come, and nobody who comes now waits for long.
func TestQueueAdaptive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Queue{Limit: 1, MaxQueue: 10, Order: Adaptive, MaxWait: 300 * time.Millisecond})
		l := newLine(t, q)
		l.join(t.Context(), "running", 1, spillway.Normal)
		l.join(t.Context(), "a", 1, spillway.Normal)
		l.join(t.Context(), "b", 1, spillway.Normal)
		q.Release(1)
		synctest.Wait()
		require.Equal(t, []string{"running", "a"}, l.in, "in order while it drains")
		time.Sleep(101 * time.Millisecond)
		l.join(t.Context(), "c", 1, spillway.Normal)
		l.join(t.Context(), "d", 1, spillway.Normal)
		q.Release(1)
		synctest.Wait()
		require.Equal(t, []string{"running", "a", "d"}, l.in, "the last to come")
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, "wait too long", l.reason("c"), "after the target, not after MaxWait")
		q.Release(1)
		synctest.Wait()
		require.Equal(t, []string{"running", "a", "d", "b"}, l.in, "who came before still waits")
		time.Sleep(time.Second)
		l.join(t.Context(), "e", 1, spillway.Normal)
		l.join(t.Context(), "f", 1, spillway.Normal)
		q.Release(1)
		synctest.Wait()
		require.Equal(t, "e", l.in[4], "it has been empty, and is in order again")
		q.Release(1)
	})
}

// What a request waits is no latency to the policies behind.
func TestWaitIsNoLatency(t *testing.T) {
	for name, build := range map[string]func() spillway.Policy{
		"Queue":  func() spillway.Policy { return newQueue(t, Queue{Limit: 1, MaxQueue: 9}) },
		"Shaper": func() spillway.Policy { return newShaper(t, Shaper{Rate: Per(50, time.Second)}) },
		"Registry": func() spillway.Policy {
			return spillway.Must(NewRegistry(&RegistryOptions{New: func(string) (Member, error) {
				return newQueue(t, Queue{Limit: 1, MaxQueue: 9}), nil
			}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen, begin := new(gatetest.Recorder), time.Now()
				gate := spillway.New(build(), seen)
				var all sync.WaitGroup
				for range 5 {
					all.Go(func() {
						permit, err := gate.Enter(t.Context(), spillway.Request{})
						require.NoError(t, err)
						time.Sleep(10 * time.Millisecond)
						permit.Done(spillway.Success)
					})
				}
				all.Wait()
				for _, res := range seen.Results() {
					require.Equal(t, 10*time.Millisecond, res.Latency)
				}
				require.Len(t, seen.Results(), 5)
				require.GreaterOrEqual(t, time.Since(begin), 50*time.Millisecond, "they did wait")
			})
		})
	}
}

func TestQueueOptions(t *testing.T) {
	for want, o := range map[string]Queue{
		"Limit must be at least 1, got 0":           {},
		"MaxQueue must be at least 1, got 0":        {Limit: 1},
		"Order must be one of the constants, got 4": {Limit: 1, MaxQueue: 1, Order: 4},
		"MaxWait must be in 0..":                    {Limit: 1, MaxQueue: 1, MaxWait: -1},
		"Target must be in 0..":                     {Limit: 1, MaxQueue: 1, Target: math.MaxInt64},
		"Interval must be in 0..":                   {Limit: 1, MaxQueue: 1, Interval: -1},
		"Name must be printable ASCII":              {Limit: 1, MaxQueue: 1, Name: "\x00"},
	} {
		q, err := New(o)
		require.Nil(t, q)
		require.ErrorContains(t, err, "limiter: Queue: "+want)
	}
	q := newQueue(t, Queue{Limit: 5, MaxQueue: 1})
	require.True(t, q.Allow())
	require.Equal(t, State{Limit: 5, Remaining: 4}, q.PeekAt(readClock()))
}

// countsOf returns the Stats of l without the times that requests waited.
func countsOf(l Limiter) Stats {
	s := l.Stats()
	s.Waits, s.RefusedAfter = stats.Distribution{}, stats.Distribution{}
	return s
}

func TestQueueRecordsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Queue{Limit: 1, MaxQueue: 2, MaxWait: 4 * time.Second})
		require.True(t, q.Allow())
		l := newLine(t, q)
		l.join(t.Context(), "a", 1, spillway.Normal)
		l.join(t.Context(), "b", 1, spillway.Normal)
		l.join(t.Context(), "full", 1, spillway.Normal)
		time.Sleep(time.Second)
		q.Release(1) // a runs
		time.Sleep(4 * time.Second)
		l.all.Wait()
		s := q.Stats()
		require.Equal(t, stats.Distribution{Count: 1, Sum: 1, Scale: 2, Counts: []uint64{1}}, s.Waits, "a waited for a second")
		require.Equal(t, stats.Distribution{Count: 1, Sum: 4, Scale: 2, First: 8, Counts: []uint64{1}}, s.RefusedAfter,
			"b waited until MaxWait; the one that found the queue full did not wait")
	})
}

func TestShaperRecordsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Shaper{Rate: Per(1, time.Second), MaxWait: time.Minute})
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, s.Wait(t.Context(), 1))
		}
		w := s.Stats().Waits
		require.EqualValues(t, 2, w.Count, "the first did not wait")
		require.InDelta(t, 2, w.Sum, 0.01)
	})
}
