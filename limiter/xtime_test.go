package limiter

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/roundup"
)

func TestXTimeDecidesAsTheLimiter(t *testing.T) {
	x := spillway.Must(New(XTime{Limiter: rate.NewLimiter(10, 3), Name: "shared"}))
	admit := func(at time.Duration, cost int) (spillway.Request, spillway.Ticket, error) {
		r := spillway.Request{Arrived: after(at), Cost: cost}
		ticket, err := x.Admit(t.Context(), r)
		return r, ticket, err
	}
	_, _, err := admit(0, 2)
	require.NoError(t, err)
	require.Equal(t, State{Limit: 3, Remaining: 1, NextIn: d, FullIn: 2 * d}, x.PeekAt(after(0)))
	_, _, err = admit(0, 2)
	require.Equal(t, &spillway.Rejection{Policy: "shared", Reason: "rate exceeded", RetryAfter: 52 * roundup.Tick, OverQuota: true}, err)
	_, _, err = admit(0, 4)
	require.Equal(t, "cost exceeds limit", err.(*spillway.Rejection).Reason)
	_, _, err = admit(0, -4)
	require.Equal(t, "cost is negative", err.(*spillway.Rejection).Reason)

	// What is given back is given back, although others have come since.
	r, ticket, err := admit(d, 2)
	require.NoError(t, err)
	x.Done(r, ticket, spillway.Result{Outcome: spillway.Success})
	require.Zero(t, x.PeekAt(after(d)).Remaining)
	_, _, err = admit(2*d, 1)
	require.NoError(t, err)
	x.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
	require.Equal(t, int64(2), x.PeekAt(after(2*d)).Remaining)
	require.False(t, x.Idle(after(2*d)))
	require.True(t, x.Idle(after(3*d)))
	require.Equal(t, Stats{Name: "shared", Admitted: 3, Refused: 1, ByReason: []spillway.Refusal{{Policy: "shared", Reason: "rate exceeded", Count: 1}}, Impossible: 2, Returned: 1}, x.Stats())
	require.Equal(t, spillway.Quota{Name: "shared", Limit: 3, Remaining: 2, Window: 3 * d, Reset: d}, x.Quota(after(2*d), r))
}

// x/time takes a stale reading for the time and mints a token from it.
func TestXTimeDoesNotRunBackwards(t *testing.T) {
	limiter := rate.NewLimiter(10, 1)
	require.True(t, limiter.AllowN(after(0), 1))
	require.True(t, limiter.AllowN(after(d), 1))
	x := spillway.Must(New(XTime{Limiter: rate.NewLimiter(10, 1)}))
	passed := 0
	rng := rand.New(rand.NewPCG(1, 1))
	for now := time.Duration(0); now < 100*time.Second; now += time.Millisecond {
		stale := time.Duration(rng.Int64N(int64(time.Second)))
		if _, err := x.Admit(t.Context(), spillway.Request{Arrived: after(now - stale)}); err == nil {
			passed++
		}
	}
	require.LessOrEqual(t, passed, 1001)
	require.Greater(t, passed, 700, "a burst of one loses what comes while it is full")
}

func TestXTimeWithoutLimit(t *testing.T) {
	x := spillway.Must(New(XTime{Limiter: rate.NewLimiter(rate.Inf, 0)}))
	_, err := x.Admit(t.Context(), spillway.Request{Arrived: after(0), Cost: 1e6})
	require.NoError(t, err)
	require.True(t, x.Idle(after(0)))
	x = spillway.Must(New(XTime{Limiter: rate.NewLimiter(0, 1)}))
	_, err = x.Admit(t.Context(), spillway.Request{Arrived: after(0)})
	require.NoError(t, err)
	_, err = x.Admit(t.Context(), spillway.Request{Arrived: after(time.Hour)})
	require.Zero(t, err.(*spillway.Rejection).RetryAfter)
	require.Equal(t, State{Limit: 1, NextIn: never, FullIn: never}, x.PeekAt(after(time.Hour)))
	_, err = New(XTime{})
	require.EqualError(t, err, "limiter: XTime: Limiter must be set, got nil")
	_, err = New(XTime{Limiter: rate.NewLimiter(1, 1), Name: "\n"})
	require.ErrorContains(t, err, "Name")
}

// What a later policy refuses comes back whole. If the bucket was full meanwhile, that is more than time left room for, as documented.
func TestXTimeGivesBackWhole(t *testing.T) {
	for wait, want := range map[time.Duration]int{0: 10, 500 * time.Millisecond: 15, time.Second: 20} {
		x := spillway.Must(New(XTime{Limiter: rate.NewLimiter(10, 10)}))
		take := func(at time.Duration, n int) bool {
			_, err := x.Admit(t.Context(), spillway.Request{Arrived: after(at), Cost: n})
			return err == nil
		}
		require.True(t, take(0, 10))
		used := 0
		for take(wait, 1) {
			used++
		}
		x.Done(spillway.Request{Arrived: after(0), Cost: 10}, 0, spillway.Result{Outcome: spillway.Refused})
		for take(wait, 1) {
			used++
		}
		require.Equal(t, want, used, "after %v", wait)
	}
}

// TestXTimeDirectly shows that the direct methods take from the same rate.Limiter as other code, and give back exactly.
func TestXTimeDirectly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := rate.NewLimiter(10, 3)
		x := spillway.Must(New(XTime{Limiter: shared, Name: "shared"}))
		require.True(t, x.Allow())
		require.NoError(t, x.AllowAt(time.Now(), 2))
		require.False(t, shared.Allow(), "other code shares it")
		require.False(t, x.Allow())
		var cost *CostError
		require.ErrorAs(t, x.AllowAt(time.Now(), 4), &cost)
		require.Equal(t, 3, cost.Max)

		_, err := x.ReserveAt(time.Now(), 2, d)
		require.Equal(t, "rate exceeded", spillway.RejectionOf(err).Reason)
		res, err := x.ReserveAt(time.Now(), 2, 2*d)
		require.NoError(t, err)
		require.Equal(t, 2*d, res.Delay())
		res.CancelAt(time.Now())
		require.Equal(t, State{Limit: 3, NextIn: d, FullIn: 3 * d}, x.PeekAt(time.Now()), "as before the reservation")
		res, err = x.ReserveAt(time.Now(), 3, time.Second)
		require.NoError(t, err)
		res.RefundAt(time.Now(), 2)
		require.InDelta(t, -1, shared.Tokens(), 1e-6, "the debt of one token is left")

		begun := time.Now()
		require.NoError(t, x.Wait(t.Context(), 1))
		require.Equal(t, 2*d, time.Since(begun))
		ctx, cancel := context.WithTimeout(t.Context(), d/2)
		defer cancel()
		require.ErrorIs(t, x.Wait(ctx, 1), context.DeadlineExceeded)
		x.Release(1)
		require.Equal(t, int64(5), x.Stats().Admitted)
	})
}

// TestXTimeKeepsItsLimiter shows that a rule of an XTime is changed at the rate.Limiter, and that no Keyed takes one.
func TestXTimeKeepsItsLimiter(t *testing.T) {
	shared := rate.NewLimiter(10, 3)
	x := spillway.Must(New(XTime{Limiter: shared}))
	require.Equal(t, XTime{Limiter: shared, Name: "token bucket"}, x.Rule())
	require.NoError(t, x.Tune(x.Rule()))
	require.NoError(t, x.Tune(XTime{Limiter: shared}))
	require.EqualError(t, x.Tune(XTime{}), "limiter: XTime: Tune: Limiter cannot change: call its SetLimit and SetBurst")
	require.EqualError(t, x.Tune(Concurrency{Limit: 1}), "limiter: XTime: Tune: rule must be of the same kind, got limiter.Concurrency")
	require.EqualError(t, x.Tune(XTime{Limiter: shared, Name: "x"}), `limiter: XTime: Tune: Name must stay "token bucket", got "x"`)
	shared.SetBurst(5)
	require.Equal(t, int64(5), x.PeekAt(time.Now()).Limit)
	_, err := NewKeyed(XTime{Limiter: shared}, nil)
	require.EqualError(t, err, "limiter: Keyed: rule must not be an XTime, because all keys would share its Limiter: use a Registry")
}
