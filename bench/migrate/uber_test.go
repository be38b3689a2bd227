package migrate

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/ratelimit"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

func paceBefore() ratelimit.Limiter { return ratelimit.New(100) }

func takeBefore(l ratelimit.Limiter, send func()) {
	l.Take()
	send()
}

func paceAfter() (limiter.Limiter, error) {
	return limiter.New(limiter.Shaper{Rate: limiter.Per(100, time.Second), Slack: 10})
}

func takeAfter(ctx context.Context, l limiter.Limiter, send func()) error {
	if err := l.Wait(ctx, 1); err != nil {
		return err
	}
	send()
	return nil
}

func TestUberRatelimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := paceBefore()
		shaper, err := paceAfter()
		require.NoError(t, err)
		sent := 0
		send := func() { sent++ }
		begin := time.Now()
		for range 101 {
			takeBefore(old, send)
		}
		require.Equal(t, time.Second, time.Since(begin))
		begin = time.Now()
		for range 112 {
			require.NoError(t, takeAfter(t.Context(), shaper, send))
		}
		require.InDelta(t, time.Second, time.Since(begin), float64(20*time.Millisecond), "11 pass at once")
		require.Equal(t, 213, sent)

		// The difference: a caller can give up.
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, takeAfter(ctx, shaper, send), spillway.ErrRejected)
	})
}

// Two hundred callers come at once.
func TestUberRatelimitCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := paceBefore()
		shaper, err := paceAfter()
		require.NoError(t, err)
		var sent atomic.Int64
		send := func() { sent.Add(1) }
		for range 200 {
			go takeBefore(old, send)
		}
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 200, sent.Swap(0))
		for range 200 {
			go func() { _ = takeAfter(t.Context(), shaper, send) }()
		}
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 111, sent.Load(), "the slack at once, and what one second brings")
	})
}
