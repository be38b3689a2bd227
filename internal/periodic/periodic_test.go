package periodic_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/periodic"
)

func TestOncePerInterval(t *testing.T) {
	made := 0
	v := periodic.New(time.Second, func(time.Time) int { made++; return made })
	start := time.Unix(100, 0)
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {999 * time.Millisecond, 1}, {time.Second, 2}, {1999 * time.Millisecond, 2}, {time.Hour, 3}, {time.Second, 3}} {
		require.Equal(t, c.want, v.At(start.Add(c.after)), c.after)
	}
}

func TestOthersGetTheLastValueWhileOneMakesTheNext(t *testing.T) {
	started, finish := make(chan bool), make(chan bool)
	slow := false
	v := periodic.New(time.Second, func(now time.Time) int64 {
		if slow {
			started <- true
			<-finish
		}
		return now.Unix()
	})
	require.Equal(t, int64(100), v.At(time.Unix(100, 0)))
	slow = true
	var wg sync.WaitGroup
	wg.Go(func() { v.At(time.Unix(200, 0)) })
	<-started
	require.Equal(t, int64(100), v.At(time.Unix(200, 0)))
	finish <- true
	wg.Wait()
	require.Equal(t, int64(200), v.At(time.Unix(200, 0)))
}

func TestCallsOfNextNeverOverlap(t *testing.T) {
	var inside, most atomic.Int32
	v := periodic.New(time.Nanosecond, func(time.Time) bool {
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
		return true
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 1000 {
				v.At(time.Unix(int64(n), int64(i)))
			}
		})
	}
	wg.Wait()
	require.Equal(t, int32(1), most.Load())
}
