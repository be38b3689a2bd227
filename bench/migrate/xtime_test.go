package migrate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

func newXTime() *rate.Limiter { return rate.NewLimiter(100, 20) }

func sendBefore(ctx context.Context, l *rate.Limiter, send func()) error {
	if err := l.Wait(ctx); err != nil {
		return err
	}
	send()
	return nil
}

func newBucketAfter() (limiter.Limiter, error) {
	return limiter.New(limiter.Bucket{Rate: limiter.Per(100, time.Second), Burst: 20})
}

func sendAfter(ctx context.Context, l limiter.Limiter, send func()) error {
	if err := l.Wait(ctx, 1); err != nil {
		return err
	}
	send()
	return nil
}

func TestXTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newXTime()
		bucket, err := newBucketAfter()
		require.NoError(t, err)
		for range 20 {
			require.True(t, old.Allow())
			require.True(t, bucket.Allow())
		}
		require.False(t, old.Allow())
		require.False(t, bucket.Allow())
		sent := 0
		send := func() { sent++ }
		begin := time.Now()
		require.NoError(t, sendBefore(t.Context(), old, send))
		require.Equal(t, 10*time.Millisecond, time.Since(begin))
		begin = time.Now()
		time.Sleep(time.Millisecond)
		require.NoError(t, sendAfter(t.Context(), bucket, send))
		require.LessOrEqual(t, time.Since(begin), 10*time.Millisecond)
		require.Equal(t, 2, sent)

		// The differences: the error, and a cost that can never pass.
		ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
		defer cancel()
		require.NotErrorIs(t, old.WaitN(ctx, 20), context.DeadlineExceeded)
		err = bucket.Wait(ctx, 20)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, spillway.ErrRejected)
		require.False(t, old.AllowN(time.Now(), 21))
		cost := new(limiter.CostError)
		require.ErrorAs(t, bucket.AllowAt(time.Now(), 21), &cost)
	})
}

// A time before that of an earlier call gives x/time tokens for time that has been paid for.
func TestXTimeGoesBack(t *testing.T) {
	old := newXTime()
	bucket, err := newBucketAfter()
	require.NoError(t, err)
	now := time.Unix(1000, 0)
	require.True(t, old.AllowN(now, 20))
	require.NoError(t, bucket.AllowAt(now, 20))
	require.True(t, old.AllowN(now.Add(-time.Second), 0))
	require.NoError(t, bucket.AllowAt(now.Add(-time.Second), 0))
	require.True(t, old.AllowN(now, 20))
	require.ErrorIs(t, bucket.AllowAt(now, 20), spillway.ErrRejected)
}
