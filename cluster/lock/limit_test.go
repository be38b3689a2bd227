package lock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

// Each process applies its own limit, so while they differ the greatest decides how many there are.
func TestSemaphoreLimitsThatDiffer(t *testing.T) {
	addr := redistest.Start(t).Addr()
	few := semaphoreAt(t, addr, Options{Limit: 3, TTL: time.Minute})
	many := semaphoreAt(t, addr, Options{Limit: 3, TTL: time.Minute})
	require.NoError(t, tune(few, 1))
	for range 2 {
		_, err := many.TryAcquire(t.Context(), "k")
		require.NoError(t, err)
	}
	_, err := few.TryAcquire(t.Context(), "k")
	requireFull(t, err, "limit reached")
	_, err = many.TryAcquire(t.Context(), "k")
	require.NoError(t, err)
	_, err = many.TryAcquire(t.Context(), "k")
	requireFull(t, err, "limit reached")
	require.NoError(t, tune(many, 1))
	_, err = many.TryAcquire(t.Context(), "k")
	requireFull(t, err, "limit reached")
}
