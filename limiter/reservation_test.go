package limiter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

func reserve(t *testing.T, l direct, at time.Duration, n int) Reservation {
	t.Helper()
	r, err := l.ReserveAt(after(at), n, 0)
	require.NoError(t, err)
	return r
}

// Tokens come back to the window they were taken in, whichever is asked about.
func TestRefundKeepsEveryWindow(t *testing.T) {
	const s = time.Second
	for name, l := range map[string]direct{"log": newLog(t, 2000, 60*s), "window": newSliding(t, 2000, 60*s, 0)} {
		reserve(t, l, 0, 1000)
		late := reserve(t, l, 25*s, 1000)
		late.RefundAt(after(30*s), 800)
		require.Equal(t, int64(800), l.PeekAt(after(30*s)).Remaining, name)
		reserve(t, l, 30*s, 800)
		require.Error(t, l.AllowAt(after(31*s), 1), name)
		require.Equal(t, int64(1000), l.PeekAt(after(70*s)).Remaining, "%s: those of 0 s have gone, and no more", name)
		late.RefundAt(after(90*s), 200)
		require.Equal(t, int64(2000), l.PeekAt(after(95*s)).Remaining, name)
		reserve(t, l, 95*s, 2000)
		late.RefundAt(after(95*s), 200)
		require.Error(t, l.AllowAt(after(96*s), 1), "%s: a window that is over gives nothing to another", name)
	}
	w := newWindow(t, FixedWindow{Limit: 40, Period: 60 * s})
	first := reserve(t, w, 0, 40)
	reserve(t, w, 60*s, 40)
	first.RefundAt(after(61*s), 10)
	require.Error(t, w.AllowAt(after(61*s), 1), "a refund of the window before")
}

// A request whose window is over does not bring it back when a policy behind refuses it.
func TestALateRefusalDoesNotReopenTheWindow(t *testing.T) {
	w := newWindow(t, FixedWindow{Limit: 20, Calendar: EveryMinute})
	r := spillway.Request{Arrived: after(59 * time.Second)}
	_, err := w.ReserveAt(after(50*time.Second), 20, time.Minute)
	require.NoError(t, err)
	_, err = w.ReserveAt(after(50*time.Second), 20, time.Minute)
	require.NoError(t, err, "the next minute's")
	require.Error(t, w.AllowAt(after(61*time.Second), 1))

	w = newWindow(t, FixedWindow{Limit: 20, Calendar: EveryMinute})
	ticket, err := w.Admit(t.Context(), r)
	require.NoError(t, err)
	_, err = w.ReserveAt(after(59*time.Second), 20, time.Minute)
	require.NoError(t, err)
	require.Error(t, w.AllowAt(after(60*time.Second), 1), "used up by the one that waited")
	w.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
	require.Error(t, w.AllowAt(after(61*time.Second), 1))
	require.Error(t, w.AllowAt(after(119*time.Second), 1))
}

// What time has returned is not returned again, in whatever order it is given back.
func TestBucketRefundsNothingTwice(t *testing.T) {
	const s = time.Second
	for _, first := range []bool{true, false} {
		b := newBucket(t, Per(100, s), 1000)
		older, newer := reserve(t, b, 0, 500), reserve(t, b, 0, 500)
		if first {
			older.RefundAt(after(4*s), 500) // 400 of them have come back by themselves
			require.Equal(t, int64(500), b.PeekAt(after(4*s)).Remaining)
		}
		used := reserve(t, b, 8900*time.Millisecond, 500)
		newer.RefundAt(after(8900*time.Millisecond), 500)
		require.LessOrEqual(t, b.PeekAt(after(8900*time.Millisecond)).Remaining, int64(500), "the last 500 were used")
		used.RefundAt(after(8900*time.Millisecond), 500)
		require.Equal(t, int64(1000), b.PeekAt(after(8900*time.Millisecond)).Remaining)
	}
	// Given back at once, all tokens return, in any order.
	b := newBucket(t, Per(100, s), 1000)
	var rs []Reservation
	for range 10 {
		rs = append(rs, reserve(t, b, 0, 100))
	}
	for _, i := range []int{3, 9, 0, 5, 1, 8, 2, 7, 6, 4} {
		rs[i].RefundAt(after(0), 60)
		rs[i].RefundAt(after(0), 1000)
	}
	require.True(t, b.Idle(after(0)))
	// An estimate that was too high comes back while the bucket is not nearly full.
	b = newBucket(t, Per(100, s), 1000)
	reserve(t, b, 0, 900)
	r := reserve(t, b, 0, 100)
	r.RefundAt(after(5*s), 70)
	require.Equal(t, int64(570), b.PeekAt(after(5*s)).Remaining)
}

// What leaked at another rate is not known.
func TestRefundAcrossRates(t *testing.T) {
	const s = time.Second
	b := newBucket(t, Per(100, s), 100)
	r := reserve(t, b, 0, 100)
	require.NoError(t, setRate(b, after(s), Per(1, s)))
	reserve(t, b, s, 100)
	r.RefundAt(after(s), 100)
	require.Error(t, b.AllowAt(after(s), 1), "all hundred had come back at the old rate")

	w := newWarmUp(t, WarmUp{Rate: Per(10, s), MaxCost: 10})
	r = reserve(t, w, 0, 10)
	require.NoError(t, setRate(w, after(s), Per(1, s)))
	reserve(t, w, s, 10)
	r.RefundAt(after(s), 10)
	require.Error(t, w.AllowAt(after(10*s), 1))

	sh := newShaper(t, Shaper{Rate: Per(1, s), MaxCost: 5})
	r = reserve(t, shaperDirect{sh}, 0, 5)
	reserve(t, shaperDirect{sh}, 5*s, 5)
	require.NoError(t, setRate(sh, after(5*s), Per(10, s)))
	r.RefundAt(after(5*s), 5)
	require.Error(t, sh.AllowAt(after(9*s), 1))
}

// As in x/time, whose users defer Cancel.
func TestCancelAfterUseDoesNothing(t *testing.T) {
	for name, l := range directs(t) {
		n := 0
		for i := range 1000 {
			at := time.Duration(i) * 500 * time.Microsecond
			if r, err := l.ReserveAt(after(at), 1, 0); err == nil {
				n++
				r.CancelAt(after(at + 1))
			}
		}
		require.LessOrEqual(t, n, 5, "%s: half a second of three per second, and a burst of three", name)
	}
	k := newKeyed(t, newLog(t, 3, time.Second), 0)
	r, err := k.ReserveAt(after(0), "a", 3, 0)
	require.NoError(t, err)
	r.CancelAt(after(1))
	require.Error(t, k.AllowAt(after(1), "a", 1))
	r.RefundAt(after(1), 1)
	require.NoError(t, k.AllowAt(after(1), "a", 1), "it still may give back what it did not use")

	l := newLog(t, 3, time.Second)
	reserve(t, l, 0, 3)
	r, err = l.ReserveAt(after(0), 3, time.Second)
	require.NoError(t, err)
	r.CancelAt(after(time.Second - 1))
	require.NoError(t, l.AllowAt(after(time.Second), 3), "it was in time")
}

// A Shaper that has told one when to go does not give the time away.
func TestShaperKeepsThePromiseToReservations(t *testing.T) {
	const s = time.Second
	sh := newShaper(t, Shaper{Rate: Per(1, s), MaxWait: time.Minute})
	get := func(at, want time.Duration) Reservation {
		t.Helper()
		r, err := sh.ReserveAt(after(at), 1, time.Minute)
		require.NoError(t, err)
		require.Equal(t, want, r.Delay())
		return r
	}
	used := get(0, 0)
	first := get(0, s)
	get(0, 2*s)
	last := get(0, 3*s)
	first.CancelAt(after(0))
	used.RefundAt(after(0), 1)
	get(0, 4*s)
	last.CancelAt(after(0))
	get(0, 5*s)
	require.Error(t, sh.AllowAt(after(5*s), 1), "it is the turn of the last")
	require.NoError(t, sh.AllowAt(after(6*s), 1))
}

// Those who wait in a WarmUp go when they were told.
func TestWarmUpKeepsThePromiseToReservations(t *testing.T) {
	const s = time.Second
	w := newWarmUp(t, WarmUp{Rate: Per(1, s)})
	reserve(t, w, 0, 1)
	first, err := w.ReserveAt(after(0), 1, time.Minute)
	require.NoError(t, err)
	last, err := w.ReserveAt(after(0), 1, time.Minute)
	require.NoError(t, err)
	require.Equal(t, 2*s, last.Delay())
	first.CancelAt(after(0))
	require.Equal(t, 3*s, w.PeekAt(after(0)).NextIn)
	last.CancelAt(after(0))
	require.Equal(t, 2*s, w.PeekAt(after(0)).NextIn)
}

// A key that shared a limit while there was no room for its own has used up that.
func TestKeyedOwnLimitBeginsWithTheShared(t *testing.T) {
	const s = time.Second
	for name, like := range map[string]Limiter{
		"bucket": newBucket(t, Per(1, s), 3), "log": newLog(t, 3, 3*s), "window": newWindow(t, FixedWindow{Limit: 3, Period: 3 * s}),
		"warm-up": newWarmUp(t, WarmUp{Rate: Per(1, s), MaxCost: 3}),
	} {
		k := newKeyed(t, like, 1)
		require.NoError(t, k.AllowAt(after(0), "own", 1), name)
		require.NoError(t, k.AllowAt(after(0), "a", 3), name)
		require.Equal(t, int64(1), k.Stats().Overflowed)
		at := 3*s - 1 // "own" is as good as new, so "a" takes its place
		if name != "log" && name != "window" {
			at = 1100 * time.Millisecond
		}
		free := k.PeekAt(after(at), "b").Remaining
		require.Less(t, free, int64(3))
		passed := int64(0)
		for range 6 {
			if k.AllowAt(after(at), "a", 1) == nil {
				passed++
			}
		}
		require.LessOrEqual(t, passed, free+1, name)
	}
}

// A stamp of a state that was forgotten says nothing to the next one of the same key.
func TestKeyedRefundOfAForgottenState(t *testing.T) {
	for name, like := range map[string]Limiter{
		"bucket": newBucket(t, Per(100, time.Second), 10), "warm-up": newWarmUp(t, WarmUp{Rate: Per(100, time.Second), MaxCost: 10}),
	} {
		k := newKeyed(t, like, 1)
		r, err := k.ReserveAt(after(0), "a", 10, 0)
		require.NoError(t, err)
		require.NoError(t, k.AllowAt(after(time.Second), "b", 1), "a is forgotten")
		require.Equal(t, int64(1), k.Stats().Evicted)
		require.NoError(t, k.AllowAt(after(2*time.Second), "a", 10))
		r.RefundAt(after(2*time.Second), 10)
		require.Error(t, k.AllowAt(after(2*time.Second), "a", 1), name)
	}
}

// A wait that the deadline does not allow is a matter of the deadline too.
func TestRefusedForTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		k := newKeyed(t, newBucket(t, Per(3, time.Second), 3), 0)
		s := newShaper(t, Shaper{Rate: Per(3, time.Second)})
		waits := map[string]func(n int) error{
			"Keyed":  func(n int) error { return k.Wait(ctx, "a", n) },
			"Shaper": func(n int) error { return s.Wait(ctx, n) },
		}
		for name, l := range directs(t) {
			waits[name] = func(n int) error {
				return l.(interface {
					Wait(ctx context.Context, n int) error
				}).Wait(ctx, n)
			}
		}
		for name, wait := range waits {
			require.NoError(t, wait(3), name)
			err := wait(3)
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.ErrorIs(t, err, spillway.ErrRejected, name)
			var rej *spillway.Rejection
			require.ErrorAs(t, err, &rej, name)
			require.Positive(t, rej.RetryAfter, name)
			require.Equal(t, rej.Error(), err.Error())
			require.NotErrorIs(t, wait(4), context.DeadlineExceeded, "%s: it can never pass", name)
		}
	})
}

// RefundAt gives back the tokens that still count, going by the time at which they were taken.
func TestKeyedRefundAt(t *testing.T) {
	const s = time.Second
	log := newKeyed(t, newLog(t, 2000, 60*s), 0)
	require.NoError(t, log.AllowAt(after(0), "a", 1000))
	require.NoError(t, log.AllowAt(after(25*s), "a", 1000))
	log.RefundAt(after(30*s), "a", 800)
	require.NoError(t, log.AllowAt(after(30*s), "a", 800))
	require.Equal(t, int64(200), log.PeekAt(after(60*s), "a").Remaining, "the oldest came back")
	require.NoError(t, log.AllowAt(after(100*s), "a", 1))
	log.RefundAt(after(40*s), "a", 1)
	require.Equal(t, int64(1999), log.PeekAt(after(100*s), "a").Remaining, "taken too long ago")

	for name, o := range map[string]FixedWindow{"period": {Limit: 40, Period: 60 * s}, "minute": {Limit: 40, Calendar: EveryMinute}} {
		w := newKeyed(t, newWindow(t, o), 0)
		require.NoError(t, w.AllowAt(after(0), "a", 40), name)
		w.RefundAt(after(59*s), "a", 1)
		require.Equal(t, int64(1), w.PeekAt(after(59*s), "a").Remaining, name)
		require.NoError(t, w.AllowAt(after(60*s), "a", 40), name)
		w.RefundAt(after(59*s), "a", 10)
		require.Zero(t, w.PeekAt(after(61*s), "a").Remaining, name)
		w.RefundAt(after(60*s), "a", 10)
		require.Equal(t, int64(10), w.PeekAt(after(61*s), "a").Remaining, name)
	}
	for name, like := range map[string]Limiter{
		"bucket": newBucket(t, Per(1, s), 10), "warm-up": newWarmUp(t, WarmUp{Rate: Per(1, s), MaxCost: 10}),
	} {
		b := newKeyed(t, like, 0)
		require.NoError(t, b.AllowAt(after(0), "a", 10), name)
		require.NoError(t, b.AllowAt(after(10*s), "a", 10), name)
		b.RefundAt(after(0), "a", 10)
		require.Error(t, b.AllowAt(after(10*s), "a", 1), "%s: time has returned them", name)
		b.RefundAt(after(10*s), "a", 10)
		require.NoError(t, b.AllowAt(after(10*s), "a", 10), name)
	}
}

// When this window and the next are used up, RetryAfter leads to the one after.
func TestCalendarTellsOfTheWindowAfterTheNext(t *testing.T) {
	w := newWindow(t, FixedWindow{Limit: 1, Calendar: EveryMinute})
	require.NoError(t, w.AllowAt(after(30*time.Second), 1))
	_, err := w.ReserveAt(after(30*time.Second), 1, time.Minute)
	require.NoError(t, err)
	_, err = w.ReserveAt(after(30*time.Second), 1, time.Hour)
	var rej *spillway.Rejection
	require.ErrorAs(t, err, &rej)
	require.Equal(t, 90*time.Second, rej.RetryAfter)
}

// A part of a token that has not leaked comes back too: five older tokens and half of this one leaked.
func TestRefundOfPartOfAToken(t *testing.T) {
	b, err := New(Bucket{Rate: Per(10, time.Second), Burst: 10})
	require.NoError(t, err)
	take := func(at time.Duration, n int) Reservation {
		r, err := b.ReserveAt(after(at), n, 0)
		require.NoError(t, err)
		return r
	}
	take(0, 5)
	r := take(0, 1)
	at := 550 * time.Millisecond
	take(at, 2)
	require.EqualValues(t, 7, b.PeekAt(after(at)).Remaining, "7.5")
	r.RefundAt(after(at), 1)
	require.EqualValues(t, 8, b.PeekAt(after(at)).Remaining)
}

// Parts of a ns come back as they were taken.
func TestCancelledWarmUpsLeaveNoTrace(t *testing.T) {
	w := newWarmUp(t, WarmUp{Rate: Per(3, time.Second), MaxCost: 10})
	_, err := w.ReserveAt(after(0), 1, 0)
	require.NoError(t, err)
	for range 10 {
		r, err := w.ReserveAt(after(0), 1, never)
		require.NoError(t, err)
		require.Equal(t, 333_333_333*time.Nanosecond, r.Delay())
		r.CancelAt(after(0))
	}
}
