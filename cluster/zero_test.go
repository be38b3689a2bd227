package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/cluster/lease"
	"github.com/spillway-go/spillway/cluster/lock"
)

// A value that no constructor returned denies, does no harm and can be closed.
func TestZeroValuesDeny(t *testing.T) {
	ctx, refused := t.Context(), spillway.Result{Outcome: spillway.Refused}
	denies := func(_ any, err error) {
		t.Helper()
		require.ErrorIs(t, err, spillway.ErrRejected)
	}
	denied := func(err error) { t.Helper(); denies(nil, err) }
	for _, p := range []spillway.Policy{new(exact.Limit), new(lease.Limit), new(exact.Allowance), new(lock.Semaphore)} {
		denies(p.Admit(ctx, spillway.Request{Key: "k"}))
		for _, ticket := range []spillway.Ticket{0, 1, 2, 3, 15} {
			p.Done(spillway.Request{Key: "k"}, ticket, refused)
		}
		gate := spillway.New(p)
		_, err := gate.Enter(ctx, spillway.Request{})
		denied(err)
		if shows, ok := p.(interface {
			Quota(now time.Time, r spillway.Request) spillway.Quota
		}); ok {
			shows.Quota(time.Now(), spillway.Request{})
		}
	}

	l := new(exact.Limit)
	denies(l.Take(ctx, "k", 1))
	denies(l.Take(ctx, "k", 0))
	denies(l.TakeUpTo(ctx, "k", 1))
	denies(l.Take(ctx, "k", 0))
	denied(l.Wait(ctx, "k", 1))
	denied(l.Refund(ctx, "k", new(exact.Result), 1))
	denied(l.Reset(ctx, "k"))
	denied(l.Tune())
	denies(l.SetRule(ctx, "k", nil, exact.AndKeep))
	_, _, err := l.StoredRule(ctx, "k")
	denied(err)
	require.Empty(t, l.Quotas())
	require.Zero(t, l.Stats())
	_, err = exact.NewAllowance(&exact.AllowanceOptions{Limit: l, Nodes: 1})
	require.ErrorContains(t, err, "exact: Allowance: Limit must")

	q := new(lease.Limit)
	denies(q.Take(ctx, "k", 0))
	denied(q.Tune(lease.Options{}.Rule))
	require.Zero(t, q.Stats())
	_, known := q.KeyStats("k")
	require.False(t, known)
	q.Close()
	q.Close()

	a := new(exact.Allowance)
	require.NoError(t, a.Sweep(ctx))
	require.NoError(t, a.Close())

	s := new(lock.Semaphore)
	denies(s.Acquire(ctx, "k"))
	denies(s.TryAcquire(ctx, "k"))
	denied(s.Tune(s.Options()))
	_, _, err = s.Peek(ctx, "k")
	denied(err)
	require.Zero(t, s.Stats())
	require.NoError(t, s.Close())

	h := new(lock.Lease)
	require.ErrorIs(t, h.Context().Err(), context.Canceled)
	<-h.Context().Done()
	require.Zero(t, h.Fence())
	require.Empty(t, h.Key())
	require.Zero(t, h.Remaining())
	_, err = h.Clone()
	require.ErrorIs(t, err, lock.ErrLeaseLost)
	require.NoError(t, h.Release())
	require.NotEmpty(t, new(cluster.RedisError).Error())
}
