package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/cluster/lease"
	"github.com/spillway-go/spillway/cluster/lock"
)

// TestMain starts what the tests of all limits share.
func TestMain(m *testing.M) { redistest.Main(m, nil) }

func newLimit(t *testing.T, o exact.Options) *exact.Limit {
	t.Helper()
	if o.Fallback == 0 {
		o.Fallback = cluster.RefuseAll
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second // the machine may be busy
	}
	l, err := exact.New(&o)
	require.NoError(t, err)
	return l
}

func newLease(t *testing.T, o lease.Options) *lease.Limit {
	t.Helper()
	if o.Fallback == 0 {
		o.Fallback = cluster.RefuseAll
	}
	l, err := lease.New(&o)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func newLock(t *testing.T, o lock.Options) *lock.Semaphore {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	s, err := lock.New(&o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
