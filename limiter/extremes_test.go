package limiter

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
)

// Arrivals that only broken clocks have.
var (
	yearOne      = time.Date(1, time.January, 1, 0, 0, 0, 0, time.UTC)
	year9999     = time.Date(9999, time.January, 1, 0, 0, 0, 0, time.UTC)
	endsOfTime   = []time.Time{time.Unix(math.MinInt64, 0), time.Unix(math.MaxInt64, 999999999)}
	allCalendars = []Calendar{EveryMinute, EveryHour, EveryDay, EveryMonth}
)

// A calendar finds its way from any time, and what was used up at one end of time stays so at that end.
func TestCalendarsAtTheEndsOfTime(t *testing.T) {
	for _, every := range allCalendars {
		for _, at := range endsOfTime {
			w := newWindow(t, FixedWindow{Limit: 1, Calendar: every})
			require.NoError(t, w.AllowAt(at, 1))
			var rej *spillway.Rejection
			require.ErrorAs(t, w.AllowAt(at, 1), &rej)
			require.Positive(t, rej.RetryAfter, "calendar %d at %v", every, at)
			require.Positive(t, w.PeekAt(at).NextIn)
		}
	}
}

// The longest windows, from one end of what a clock can tell to the other: no wait overflows, and nothing passes twice.
func TestLongestWindows(t *testing.T) {
	fixed := newWindow(t, FixedWindow{Limit: 1, Period: horizon})
	require.NoError(t, fixed.AllowAt(year9999, 1))
	_, err := fixed.ReserveAt(year9999, 1, horizon)
	require.NoError(t, err)
	var rej *spillway.Rejection
	require.ErrorAs(t, fixed.AllowAt(yearOne, 1), &rej)
	require.Zero(t, rej.RetryAfter, "nobody knows when")
	require.Equal(t, never, fixed.PeekAt(yearOne).FullIn)

	sliding := spillway.Must(New(SlidingWindow{Limit: 1, Window: horizon, Buckets: 1}))
	keyed := newKeyed(t, sliding, 1)
	require.NoError(t, keyed.AllowAt(year9999, "a", 1))
	require.ErrorAs(t, keyed.AllowAt(yearOne, "a", 1), &rej)
	require.Zero(t, rej.RetryAfter)
	require.Positive(t, keyed.PeekAt(yearOne, "a").FullIn)
}

// A time too far back for the clock of an XTime is no step back for the rate.Limiter, which would gain it a full bucket.
func TestXTimeLongAgo(t *testing.T) {
	x := spillway.Must(New(XTime{Limiter: rate.NewLimiter(rate.Every(time.Hour), 2)}))
	for i, at := range []time.Time{after(0), yearOne, after(0), after(time.Minute)} {
		_, err := x.Admit(t.Context(), spillway.Request{Arrived: at})
		require.Equal(t, i < 2, err == nil, "request %d", i)
	}
	require.Equal(t, x.PeekAt(after(time.Minute)), x.PeekAt(yearOne))
}
