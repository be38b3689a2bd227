package limiter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

func newConcurrency(t testing.TB, limit int) *places {
	t.Helper()
	c, err := New(Concurrency{Limit: limit})
	require.NoError(t, err)
	return c.(*places)
}

func TestConcurrencyCounts(t *testing.T) {
	c := newConcurrency(t, 3)
	require.NoError(t, c.AllowAt(start, 2))
	require.True(t, c.Allow())
	require.False(t, c.Allow())
	require.NoError(t, c.AllowAt(start, 0))
	require.Equal(t, &spillway.Rejection{Policy: "concurrency", Reason: "limit reached"}, c.AllowAt(start, 1), "a lack of room, not a quota")
	require.Equal(t, Stats{Name: "concurrency", InFlight: 3, Refused: 1, ByReason: []spillway.Refusal{{Policy: "concurrency", Reason: "limit reached", Count: 1}}}, c.Stats())
	require.False(t, c.Idle(start))
	c.Release(2)
	require.Equal(t, State{Limit: 3, Remaining: 2}, c.PeekAt(readClock()))
	for _, n := range []int{4, -1, math.MaxInt, math.MinInt} {
		var cost *CostError
		require.ErrorAs(t, c.AllowAt(start, n), &cost)
		_, err := c.Admit(t.Context(), spillway.Request{Cost: n})
		require.Same(t, cost.Unwrap(), err)
	}
	c.Release(1)
	require.True(t, c.Idle(start))
	for range 3 {
		require.PanicsWithValue(t, "limiter: Concurrency: released more than was acquired", func() { c.Release(1) })
		require.Zero(t, c.Stats().InFlight, "and nothing has changed")
	}
	require.Panics(t, func() { c.Release(-1) })
}

func TestConcurrencyIsResizedWhileInUse(t *testing.T) {
	c := newConcurrency(t, 3)
	require.NoError(t, c.AllowAt(start, 3))
	require.NoError(t, setLimit(c, 1), "which does not wait")
	require.Equal(t, State{Limit: 1}, c.PeekAt(readClock()))
	c.Release(2)
	require.False(t, c.Allow())
	c.Release(1)
	require.True(t, c.Allow())
	require.NoError(t, setLimit(c, 2))
	require.True(t, c.Allow())
	require.EqualError(t, setLimit(c, 0), "limiter: Concurrency: Limit must be at least 1, got 0")
	require.Equal(t, int64(2), c.PeekAt(start).Limit)
	_, err := New(Concurrency{})
	require.EqualError(t, err, "limiter: Concurrency: Limit must be at least 1, got 0")
	_, err = New(Concurrency{Limit: 1, Name: "\n"})
	require.ErrorContains(t, err, "Name must be printable ASCII")
}

// For two seconds, from eight goroutines, no limit lets more pass than it may.
func TestBoundsHoldUnderContention(t *testing.T) {
	const (
		workers = 8
		length  = 2 * time.Second
		window  = 50 * time.Millisecond
		limit   = 20
	)
	rate := Per(limit, window)
	keyed := spillway.Must(NewKeyed(Bucket{Rate: rate, Burst: limit}, nil))
	queue := spillway.Must(New(Queue{Limit: 3, MaxQueue: 2}))
	shaper := spillway.Must(New(Shaper{Rate: Per(500, time.Second), MaxQueue: 100}))
	concurrency := newConcurrency(t, 3)
	rates := []interface{ Allow() bool }{
		newBucket(t, rate, limit), newWindow(t, FixedWindow{Limit: limit, Period: window}), newSliding(t, limit, window, 10),
		newLog(t, limit, window), newWarmUp(t, WarmUp{Rate: rate}), allowKey{keyed}, shaper,
	}
	passed := make([]atomic.Int64, len(rates))
	var queued, running, most atomic.Int64
	var queueRuns atomic.Int64
	begin := time.Now()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; time.Since(begin) < length; i++ {
				for j, l := range rates {
					if l.Allow() {
						passed[j].Add(1)
					}
				}
				if concurrency.Allow() {
					raise(&most, running.Add(1))
					running.Add(-1)
					concurrency.Release(1)
				}
				if queue.Wait(t.Context(), 1) == nil {
					raise(&queueRuns, queued.Add(1))
					queued.Add(-1)
					queue.Release(1)
				}
				if i%64 == 0 {
					_ = setLimit(concurrency, 1+i/64%3)
					_ = setLimit(queue, 1+i/64%3)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(begin)
	whole := int64(took/window) + 1
	for j, atMost := range []int64{
		limit + int64(took*limit/window), (whole + 1) * limit, whole * limit, whole * limit, 1 + int64(took*limit/window),
		limit + int64(took*limit/window), 1 + int64(took/(2*time.Millisecond)),
	} {
		require.LessOrEqual(t, passed[j].Load(), atMost, "%T", rates[j])
		require.Greater(t, passed[j].Load(), atMost/20, "%T, on a busy machine", rates[j])
	}
	require.LessOrEqual(t, most.Load(), int64(3))
	require.LessOrEqual(t, queueRuns.Load(), int64(3))
	require.Zero(t, concurrency.Stats().InFlight)
	require.Zero(t, queue.Stats().InFlight+queue.Stats().Waiting)
}

// raise makes m at least n.
func raise(m *atomic.Int64, n int64) {
	for {
		old := m.Load()
		if n <= old || m.CompareAndSwap(old, n) {
			return
		}
	}
}

type allowKey struct{ k *Keyed }

func (a allowKey) Allow() bool { return a.k.Allow("key") }

// What keys took while there was no room for limits of their own is not lost when it is given back without a ticket.
func TestKeyedGivesBackWhatItHasLent(t *testing.T) {
	k := newKeyed(t, newConcurrency(t, 2), 1)
	require.True(t, k.Allow("own"))
	require.True(t, k.Allow("a"))
	require.True(t, k.Allow("b"))
	require.False(t, k.Allow("c"), "a and b have what the others share")
	k.RefundAt(time.Now(), "b", 1)
	require.True(t, k.Allow("b"))

	k.RefundAt(time.Now(), "own", 1)
	require.True(t, k.Allow("a"), "of its own now, beside what it has of the others")
	require.Equal(t, int64(1), k.PeekAt(start, "a").Remaining)
	for _, key := range []string{"a", "a", "b"} {
		k.RefundAt(time.Now(), key, 1)
	}
	require.Equal(t, State{Limit: 2, Remaining: 2}, k.PeekAt(start, "a"))
	require.Equal(t, State{Limit: 2, Remaining: 2}, k.PeekAt(start, "c"))
}

// Whether with tickets or without, all that was lent is there again in the end.
func TestKeyedLosesNothingLent(t *testing.T) {
	type loan struct {
		r       spillway.Request
		ticket  spillway.Ticket
		without bool // a ticket
	}
	seeds(t, 8, func(t *testing.T, rng *rand.Rand) {
		k := newKeyed(t, newConcurrency(t, 4), 1+rng.IntN(8))
		var held []loan
		giveBack := func() {
			i := rng.IntN(len(held))
			l := held[i]
			held = slices.Delete(held, i, i+1)
			if l.without {
				k.RefundAt(after(0), l.r.Key, l.r.Cost)
			} else {
				k.Done(l.r, l.ticket, spillway.Result{})
			}
		}
		for i := range 3000 {
			if len(held) > 0 && rng.IntN(2) == 0 {
				giveBack()
				continue
			}
			l := loan{without: rng.IntN(2) == 0}
			l.r = spillway.Request{Key: fmt.Sprint(rng.IntN(25)), Cost: 1 + rng.IntN(2), Arrived: after(time.Duration(i))}
			var err error
			if l.without {
				err = k.AllowAt(l.r.Arrived, l.r.Key, l.r.Cost)
			} else {
				l.ticket, err = k.Admit(t.Context(), l.r)
			}
			if err == nil {
				held = append(held, l)
			}
		}
		for len(held) > 0 {
			giveBack()
		}
		require.Positive(t, k.Stats().Overflowed)
		k.keys.(*keyed[int64]).each(func(inFlight *int64) { require.Zero(t, *inFlight) })
	})
}
