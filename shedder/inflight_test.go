package shedder

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// However many enter at once, there are never more inside than the limit says, and none is lost.
func TestCrowdNeverExceedsItsLimit(t *testing.T) {
	for _, held := range []int64{0, plenty} {
		const free = 3
		c := crowd{make([]cell, maxCells)} // as on a machine with many processors
		for range held {
			_, ok := c.enter(held + free)
			require.True(t, ok)
		}
		var inside, peak, entered atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20_000 {
					at, ok := c.enter(held + free)
					if !ok {
						continue
					}
					entered.Add(1)
					if n := inside.Add(1); n > peak.Load() {
						peak.Store(n)
					}
					inside.Add(-1)
					c.leave(at)
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, peak.Load(), int64(free))
		require.Positive(t, entered.Load())
		require.Equal(t, held, c.size())
	}
}

func TestCrowdFillsUpToItsLimit(t *testing.T) {
	c := newCrowd()
	var held []int
	for range 5 {
		at, ok := c.enter(5)
		require.True(t, ok)
		held = append(held, at)
	}
	_, ok := c.enter(5)
	require.False(t, ok)
	at, ok := c.enter(noLimit)
	require.True(t, ok)
	require.EqualValues(t, 6, c.size())
	c.leave(at)
	for _, at := range held {
		c.leave(at)
	}
	require.Zero(t, c.size())
}

// Who is refused further on never ran: it neither came, for the share that MaxShed bounds, nor ended, for what watches
// whether anything is answered.
func TestRefusedFurtherOnNeitherCameNorWent(t *testing.T) {
	s := spillway.Must(New(&Options{CPU: cpuAt(0), Sched: &waitOf{}}))
	r := spillway.Request{Arrived: time.Unix(0, 0)}
	for _, c := range []struct {
		outcome    spillway.Outcome
		came, gone int64
	}{{spillway.Refused, 0, 0}, {spillway.Success, 1, 1}, {spillway.Refused, 1, 1}, {spillway.Ignored, 2, 2}} {
		ticket, err := s.Admit(context.Background(), r)
		require.NoError(t, err)
		require.EqualValues(t, 1, s.inside.size())
		s.Done(r, ticket, spillway.Result{Outcome: c.outcome})
		require.Zero(t, s.inside.size())
		require.Equal(t, c.came, s.inside.came(), c.outcome)
		require.Equal(t, c.gone, s.inside.gone(), c.outcome)
	}
}
