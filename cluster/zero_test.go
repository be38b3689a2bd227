package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// A value that no constructor returned denies, does no harm and can be closed.
func TestZeroValuesDeny(t *testing.T) {
	ctx, refused := t.Context(), spillway.Result{Outcome: spillway.Refused}
	denies := func(_ any, err error) {
		t.Helper()
		require.ErrorIs(t, err, spillway.ErrRejected)
	}
	denied := func(err error) { t.Helper(); denies(nil, err) }
	for _, p := range []spillway.Policy{new(Limit), new(Quota), new(Allowance), new(Semaphore)} {
		denies(p.Admit(ctx, spillway.Request{Key: "k"}))
		for _, ticket := range []spillway.Ticket{0, 1, 2, 3, 1<<ticketShift | fromBatch} {
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

	l := new(Limit)
	denies(l.Take(ctx, "k", 1))
	denies(l.Take(ctx, "k", 0))
	denies(l.TakeUpTo(ctx, "k", 1))
	denies(l.Peek(ctx, "k"))
	denied(l.Wait(ctx, "k", 1))
	denied(l.Refund(ctx, "k", new(Result), 1))
	denied(l.Reset(ctx, "k"))
	denied(l.Delete(ctx, "k"))
	denied(l.Tune())
	denies(l.SetRule(ctx, "k", nil, AndKeep))
	_, _, err := l.StoredRule(ctx, "k")
	denied(err)
	require.Empty(t, l.Quotas())
	require.Zero(t, l.Stats())
	RuleQuota{}.Quota(time.Now(), spillway.Request{})
	_, err = NewAllowance(&AllowanceOptions{Limit: l, Nodes: 1})
	require.ErrorContains(t, err, "cluster: Allowance: Limit must")

	q := new(Quota)
	denies(q.Take(ctx, "k", 0))
	denied(q.Tune(QuotaOptions{}.Rule))
	require.Zero(t, q.Stats())
	_, known := q.KeyStats("k")
	require.False(t, known)
	q.Close()
	q.Close()

	a := new(Allowance)
	require.NoError(t, a.Sweep(ctx))
	require.NoError(t, a.Close())

	s := new(Semaphore)
	denies(s.Acquire(ctx, "k"))
	denies(s.TryAcquire(ctx, "k"))
	denied(s.Tune(s.Options()))
	_, _, err = s.Peek(ctx, "k")
	denied(err)
	require.Zero(t, s.Stats())
	require.NoError(t, s.Close())

	h := new(Lease)
	require.ErrorIs(t, h.Context().Err(), context.Canceled)
	<-h.Context().Done()
	require.Zero(t, h.Fence())
	require.Empty(t, h.Key())
	require.Zero(t, h.Remaining())
	_, err = h.Clone()
	require.ErrorIs(t, err, ErrLeaseLost)
	require.NoError(t, h.Release())
	require.NotEmpty(t, new(RedisError).Error())
}
