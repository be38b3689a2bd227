package lease

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster/internal/race"
	"github.com/spillway-go/spillway/limiter"
)

// What a key takes is bounded, since MaxKeys of them may be kept.
func TestLimitKeyMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector takes memory of its own")
	}
	q := newQuota(t, Options{Client: clientOf(t, "127.0.0.1:1"), Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second)}})
	const keys = 5000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := make([]*keyState, keys)
	for i := range kept {
		kept[i] = q.newKey("tenant " + strconv.Itoa(i))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(after.HeapAlloc-before.HeapAlloc) / keys
	t.Logf("%.0f bytes for each key", each)
	require.Less(t, each, 2000.0)
	runtime.KeepAlive(kept)
}
