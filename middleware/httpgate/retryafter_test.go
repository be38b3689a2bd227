package httpgate_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestRetryAfterOfAServer(t *testing.T) {
	now := time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"120", "", 2 * time.Minute},
		{"0120", "", 2 * time.Minute},
		{"-1", "", 0},
		{"+1", "", 0},
		{"1.5", "", 0},
		{"abc", "", 0},
		{"12 ", "", 0},
		{"99999999999", "", 24 * time.Hour},
		{strings.Repeat("9", 1000), "", 24 * time.Hour},
		{date(time.Minute), "", time.Minute},
		{date(-time.Minute), "", 0},
		{date(1000 * time.Hour), "", 24 * time.Hour},
		{date(time.Hour), date(time.Hour - time.Minute), time.Minute}, // the clock of the server is ahead
		{date(time.Minute), "yesterday", time.Minute},
		{"Fri, 31 Feb 2026 12:00:00 GMT", "", 0},
	} {
		h := http.Header{"Retry-After": {c.value}, "Date": {c.date}}
		require.Equal(t, c.want, httpgate.RetryAfter(h, now), "%q, Date %q", c.value, c.date)
	}
	require.Zero(t, httpgate.RetryAfter(http.Header{}, now))
	require.Zero(t, httpgate.RetryAfter(nil, now))
}

func FuzzRetryAfterOfAServer(f *testing.F) {
	for _, value := range []string{"120", "-1", "abc", "Fri, 21 Nov 2026 12:00:00 GMT", "99999999999999999999"} {
		f.Add(value, value)
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		d := httpgate.RetryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, time.Unix(1e9, 0))
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, 24*time.Hour)
	})
}
