package machine

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const tick = 1 << tickBits // of a ns

// A tenth of the tokens lasts as long, and its burst comes in the same time.
func TestTermsAreExact(t *testing.T) {
	c := &Config{Rate: 1000, Burst: 10}
	terms := newTerms(c, 500, Forever, FromLease, nil)
	require.Equal(t, int64(2*time.Millisecond)*tick, terms.ticks)
	require.Equal(t, int64(10*time.Millisecond)*tick, terms.slack)
	require.Equal(t, int64(3*tick), newTerms(&Config{Rate: 1e9, Burst: 3}, 1, Forever, FromLease, nil).slack)
	require.Zero(t, newTerms(c, 0, Forever, FromLease, nil).ticks)

	const longest int64 = maxTicks / 4
	require.Zero(t, newTerms(c, 1e9*tick/float64(longest), Forever, FromLease, nil).ticks, "too long to be told")
	require.Equal(t, longest/2, newTerms(c, 1e9*tick/float64(longest/2), Forever, FromLease, nil).ticks)
	require.Equal(t, longest, newTerms(&Config{Rate: 1e-9, Burst: 1e9}, 1, Forever, FromLease, nil).slack)
}

// A Bucket lets exactly its burst and one more pass at once, and then says to the ns when the next may.
func TestBucketIsExact(t *testing.T) {
	var b Bucket
	now := time.Second
	b.set(now, newTerms(&Config{Rate: 1000, Burst: 10}, 500, Forever, FromLease, nil), 6)
	require.InDelta(t, 6, b.Tokens(now), 1e-9)
	for range 6 { // 5 of the burst, and one in debt
		ok, _, from := b.Take(now, 1)
		require.True(t, ok)
		require.Equal(t, FromLease, from)
	}
	require.InDelta(t, 0, b.Tokens(now), 1e-9)
	ok, wait, from := b.Take(now, 1)
	require.False(t, ok)
	require.Equal(t, 2*time.Millisecond+1, wait, "one token, and a ns since the word is finer")
	require.Equal(t, FromLease, from)
	ok, _, _ = b.Take(now+2*time.Millisecond-1, 1)
	require.False(t, ok)
	ok, _, _ = b.Take(now+2*time.Millisecond, 1)
	require.True(t, ok)

	b.GiveBack(now+2*time.Millisecond, 2)
	require.InDelta(t, 2, b.Tokens(now+2*time.Millisecond), 1e-9)
	b.GiveBack(now+2*time.Millisecond, math.MaxInt64) // not one of ours
	require.InDelta(t, 2, b.Tokens(now+2*time.Millisecond), 1e-9)
}

// What costs more than numbers hold is refused, and what costs as much is not.
func TestBucketRefusesWhatNumbersDoNotHold(t *testing.T) {
	take := func(n int64) (bool, time.Duration) {
		var b Bucket
		b.set(0, newTerms(&Config{Rate: 1, Burst: 1}, 1e9, Forever, FromLease, nil), 1)
		ok, wait, _ := b.Take(0, n)
		return ok, wait
	}
	const most int64 = maxTicks / 2 / tick
	for n, want := range map[int64]bool{1: true, most: true, most + 1: false, math.MaxInt64: false} {
		ok, wait := take(n)
		require.Equal(t, want, ok, n)
		if !want {
			require.Negative(t, wait, "nobody knows")
		}
	}
	var b Bucket
	b.set(0, newTerms(&Config{Rate: 1, Burst: 1}, 1e9, Forever, FromLease, nil), 1)
	ok, _, _ := b.Take(0, most)
	require.True(t, ok)
	b.GiveBack(0, most)
	require.InDelta(t, 1, b.Tokens(0), 1e-9)
}

// Terms begin when those before end, to the ns, also those that are set when they have ended already.
func TestTermsEndToTheNanosecond(t *testing.T) {
	c := &Config{Rate: 1000, Burst: 10}
	last := newTerms(c, 1000, Forever, FromShare, nil)
	first := newTerms(c, 500, time.Second, FromLease, last)
	var b Bucket
	b.set(0, first, 0)
	require.Equal(t, FromLease, b.Terms(time.Second-1).From)
	require.Equal(t, FromShare, b.Terms(time.Second).From)
	require.Equal(t, FromShare, b.Terms(Forever).From, "the last ones hold for ever")
	for at, each := range map[time.Duration]time.Duration{time.Second - 1: 2 * time.Millisecond, time.Second: time.Millisecond} {
		var late Bucket
		late.set(at, first, 1)
		ok, _, _ := late.Take(at, 1)
		require.True(t, ok)
		ok, wait, _ := late.Take(at, 1)
		require.False(t, ok)
		require.Equal(t, each+1, wait, "the gift is one token of those terms that hold then")
	}
}

// A node that has no rate keeps its debts until it has one.
func TestBucketKeepsDebts(t *testing.T) {
	c := &Config{Rate: 1000, Burst: 1000}
	none := func() *Terms { return newTerms(c, 0, Forever, FromNone, nil) }
	for gift, debt := range map[float64]float64{1: -4, 9: 0} { // 5 tokens are taken
		var b Bucket
		b.set(0, newTerms(c, 1000, Forever, FromLease, nil), gift)
		ok, _, _ := b.Take(0, 5)
		require.True(t, ok)
		b.set(0, none(), 0)
		ok, wait, from := b.Take(0, 1)
		require.False(t, ok)
		require.Negative(t, wait)
		require.Equal(t, FromNone, from)
		b.GiveBack(0, 1) // of terms that have no tokens
		require.InDelta(t, debt, b.Tokens(time.Hour), 1e-9)
		b.set(time.Hour, newTerms(c, 1000, Forever, FromLease, nil), 1)
		require.InDelta(t, debt+1, b.Tokens(time.Hour), 1e-9)
	}
}
