package exact

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// Each rule of a Limit has a key of its own, all in one slot.
func TestKeysOfRules(t *testing.T) {
	l := newLimit(t, redistest.NewClient(t, "127.0.0.1:1"), Options{
		Name: "api", Prefix: "p", Rules: []limiter.Rule{perSecond(1, 1), limiter.FixedWindow{Limit: 3, Period: time.Hour}},
	})
	require.Equal(t, []string{"p:{api:k}:b0", "p:{api:k}:w1"}, l.keys("k")[:2])
}

// The rule that a Result names is the one with the smallest part of its limit left.
func TestTightestRule(t *testing.T) {
	l := newLimit(t, redistest.NewClient(t, "127.0.0.1:1"), Options{Rules: []limiter.Rule{perSecond(10, 10), perSecond(100, 100), perSecond(1000, 1000)}})
	for want, left := range [][3]int64{{4, 50, 501}, {5, 49, 501}, {5, 51, 499}} {
		require.Equal(t, want, l.tightest([]int64{1, 0, 0, 0, left[0], 7, 7, left[1], 7, 7, left[2], 7, 7}))
	}
}

func TestRefundsThatAreLostAreCounted(t *testing.T) {
	l := newLimit(t, redistest.NewClient(t, "127.0.0.1:1"), Options{Rules: []limiter.Rule{perSecond(10, 10)}, Timeout: 100 * ms})
	err := l.giveAllBack(t.Context(), []refund{{key: "a", n: 3}, {key: "b", n: 4}})
	require.ErrorContains(t, err, "exact: 7 tokens of 2 keys were not given back: ")
}

// A time of Redis is believed until it is off by more than a second, in either direction.
func TestServerClockLearns(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ off, want time.Duration }{
		{999 * ms, 0}, {-999 * ms, 0}, {1001 * ms, 1001 * ms}, {-1001 * ms, -1001 * ms},
	} {
		var clock serverClock
		clock.learn(now.UnixMicro(), now)
		clock.learn(now.UnixMicro()+c.off.Microseconds(), now)
		require.Equal(t, now.UnixMicro()+c.want.Microseconds(), clock.estimate(now), "%v", c.off)
	}
}

// The edges that go to Redis leave half a period on either side of the instant, so that clocks may differ.
func TestCalendarEdgesSurroundTheInstant(t *testing.T) {
	const day = 24 * time.Hour
	for calendar, span := range map[limiter.Calendar]time.Duration{
		limiter.EveryMinute: time.Minute, limiter.EveryHour: time.Hour, limiter.EveryDay: day, limiter.EveryMonth: 28 * day,
	} {
		r := of(limiter.FixedWindow{Limit: 1, Calendar: calendar})
		half := span.Microseconds() / 2
		for i := range 100 {
			at := epoch.Add(time.Duration(i) * span / 7).UnixMicro()
			e := (&calendarEnds{rule: r}).around(at)
			require.GreaterOrEqual(t, at-e[0], half, "%v", r)
			require.GreaterOrEqual(t, e[len(e)-1]-at, half, "%v", r)
		}
	}
}

// The ticks of a rate are whole numbers whatever the rate.
func TestTicksAreARateInLowestTerms(t *testing.T) {
	for _, c := range []struct {
		tokens     int
		per        time.Duration
		ticks, out int64
	}{{10, time.Second, 100_000, 1}, {7, time.Second, 1_000_000, 7}, {3, 7 * time.Second, 7_000_000, 3}, {3_000_000, time.Second, 1, 3}} {
		ticks, out := of(limiter.Bucket{Rate: limiter.Per(c.tokens, c.per)}).ticks()
		require.Equal(t, []int64{c.ticks, c.out}, []int64{ticks, out}, "%d per %v", c.tokens, c.per)
	}
}

// A chunk doubles if it was spent within a quarter of a term, else halves, and takes at most the share of a process of a
// quarter of what remains.
func TestChunkSizes(t *testing.T) {
	c := &chunk{size: 8, fetched: 1}
	const term = 4 * time.Second
	require.EqualValues(t, 4, (&chunk{size: 8}).next(1, 1, 100, term), "none was spent yet")
	require.EqualValues(t, 16, c.next(int64(time.Second), 1, 100, term))
	require.EqualValues(t, 8, c.next(int64(time.Second)+1, 1, 100, term))
	require.EqualValues(t, 9, c.next(1, 9, 9, term), "not more than allowed")
	a := &Allowance{nodes: 5, term: term}
	for remaining, want := range map[int64]int64{1000: 50, 100_000: 64, 10: 1} {
		c.size = 64
		c.fill(1, 1, &Result{Result: cluster.Result{Taken: 64, State: limiter.State{Remaining: remaining}}}, a)
		require.Equal(t, want, c.size, "%d remain", remaining)
	}
}

// Of several rules, Quota tells of the one that decided.
func TestQuotaOfTheRuleThatDecided(t *testing.T) {
	t.Parallel()
	day := limiter.FixedWindow{Limit: 2, Period: 24 * time.Hour, Name: "day"}
	l := newLimit(t, server(t), Options{Rules: []limiter.Rule{perSecond(1000, 1000), day}})
	r := spillway.Request{Key: "k", Arrived: time.Now()}
	require.Equal(t, "token bucket", l.Quota(time.Now(), r).Name)
	_, err := l.Admit(t.Context(), r)
	require.NoError(t, err)
	left := l.Quota(time.Now(), r)
	require.Equal(t, "day", left.Name)
	require.EqualValues(t, 1, left.Remaining)
}
