package httpgate_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestOutcomeOfACallByStatus(t *testing.T) {
	for status, want := range map[int]spillway.Outcome{
		200: spillway.Success, 204: spillway.Success, 301: spillway.Success, 304: spillway.Success,
		400: spillway.Success, 401: spillway.Success, 404: spillway.Success, 429: spillway.Dropped,
		500: spillway.Failure, 501: spillway.Success, 502: spillway.Failure, 503: spillway.Dropped,
		504: spillway.Failure, 505: spillway.Success, 599: spillway.Failure,
	} {
		p := &gatetest.Recorder{}
		_, err := transport(t, responding(status, http.NoBody), nil, p).RoundTrip(outgoing(t.Context(), nil))
		require.NoError(t, err)
		require.Equal(t, []spillway.Outcome{want}, p.Outcomes(), "status %d", status)
	}
}

func TestOutcomeOfACallByError(t *testing.T) {
	for err, want := range map[error]spillway.Outcome{
		errBroken:                spillway.Failure,
		context.Canceled:         spillway.Failure, // not by this caller, whose context is alive
		context.DeadlineExceeded: spillway.Failure,
		errFull:                  spillway.Ignored, // another gate on the way
		io.ErrUnexpectedEOF:      spillway.Failure,
		&url.Error{Err: errFull}: spillway.Ignored,
		nil:                      spillway.Failure, // neither a response nor an error
	} {
		p := &gatetest.Recorder{}
		_, got := transport(t, failing(err), nil, p).RoundTrip(outgoing(t.Context(), nil))
		require.Equal(t, err, got)
		require.Equal(t, []spillway.Outcome{want}, p.Outcomes(), "%v", err)
	}
}

// waiting is a RoundTripper whose server never answers.
func waiting(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestCancelledCallSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		time.AfterFunc(time.Minute, cancel)
		_, err := transport(t, roundTripFunc(waiting), nil, p).RoundTrip(outgoing(ctx, nil))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes())
	})
}

func TestCancelChannelSaysNothing(t *testing.T) {
	p := &gatetest.Recorder{}
	r := outgoing(t.Context(), nil)
	cancel := make(chan struct{})
	close(cancel)
	r.Cancel = cancel //nolint:staticcheck // deprecated, yet in use
	_, err := transport(t, failing(errBroken), nil, p).RoundTrip(r)
	require.Equal(t, errBroken, err)
	require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes())
}

func TestDeadlineIsAFailureOnlyAfterAFairChance(t *testing.T) {
	for _, c := range []struct {
		given, fair time.Duration
		want        spillway.Outcome
	}{
		{99 * time.Millisecond, 0, spillway.Ignored},
		{100 * time.Millisecond, 0, spillway.Failure},
		{time.Second, 0, spillway.Failure},
		{time.Second, 2 * time.Second, spillway.Ignored},
		{time.Millisecond, time.Millisecond, spillway.Failure},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &gatetest.Recorder{}
			ctx, cancel := context.WithTimeout(t.Context(), c.given)
			defer cancel()
			_, err := transport(t, roundTripFunc(waiting), &httpgate.TransportOptions{FairChance: c.fair}, p).
				RoundTrip(outgoing(ctx, nil))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, []spillway.Outcome{c.want}, p.Outcomes(), "%v given, %v is fair", c.given, c.fair)
		})
	}
}

func TestOtherErrorsOfAHurriedCallCount(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := &gatetest.Recorder{}
	_, _ = transport(t, failing(errBroken), &httpgate.TransportOptions{FairChance: time.Hour}, p).RoundTrip(outgoing(ctx, nil))
	require.Equal(t, []spillway.Outcome{spillway.Failure}, p.Outcomes())
}

// lateContext has a deadline that has passed, but has not ended yet: its timer is late.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Unix(0, 0), true }

func TestDeadlineIsSeenThoughTheTimerOfTheContextIsLate(t *testing.T) {
	p := &gatetest.Recorder{}
	r := outgoing(lateContext{t.Context()}, nil)
	cancel := make(chan struct{})
	close(cancel)     // by the other timer, that of the client
	r.Cancel = cancel //nolint:staticcheck // deprecated, yet in use
	_, _ = transport(t, failing(errBroken), nil, p).RoundTrip(r)
	require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes(), "it had no fair chance")
	require.Equal(t, spillway.Failure, httpgate.DefaultTransportOutcome(r, nil, errBroken), "it was no cancellation")

	_, err := transport(t, responding(http.StatusOK, http.NoBody), nil, p).RoundTrip(r)
	require.NoError(t, err)
	require.Equal(t, spillway.Success, p.Outcomes()[1], "answered all the same")
}

func TestDeadlineAfterACancellationChangesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := outgoing(lateContext{ctx}, nil)
	require.Equal(t, spillway.Ignored, httpgate.DefaultTransportOutcome(r, nil, errBroken))
}

func TestClientTimeoutIsADeadline(t *testing.T) {
	stuck := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stuck }))
	defer srv.Close()
	defer close(stuck)
	for fair, want := range map[time.Duration]spillway.Outcome{time.Hour: spillway.Ignored, 1: spillway.Failure} {
		p := &gatetest.Recorder{}
		client := &http.Client{
			Timeout:   20 * time.Millisecond,
			Transport: transport(t, nil, &httpgate.TransportOptions{FairChance: fair}, p),
		}
		_, err := client.Get(srv.URL)
		require.Error(t, err)
		require.Equal(t, []spillway.Outcome{want}, p.Outcomes())
	}
}

// stuckBody never ends, unless its context does.
type stuckBody struct{ ctx context.Context }

func (b stuckBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}
func (stuckBody) Close() error { return nil }

func respondingStuck(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: stuckBody{r.Context()}}, nil
}

func TestBodyThatHangsUntilTheDeadlineIsAFailure(t *testing.T) {
	for given, want := range map[time.Duration]spillway.Outcome{50 * time.Millisecond: spillway.Ignored, time.Second: spillway.Failure} {
		synctest.Test(t, func(t *testing.T) {
			p := &gatetest.Recorder{}
			ctx, cancel := context.WithTimeout(t.Context(), given)
			defer cancel()
			res, err := transport(t, roundTripFunc(respondingStuck), nil, p).RoundTrip(outgoing(ctx, nil))
			require.NoError(t, err)
			_, err = io.ReadAll(res.Body)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			synctest.Wait()
			require.Equal(t, []spillway.Outcome{want}, p.Outcomes())
		})
	}
}

func TestCancelWhileTheBodyIsReadSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		res, err := transport(t, roundTripFunc(respondingStuck), nil, p).RoundTrip(outgoing(ctx, nil))
		require.NoError(t, err)
		_, err = io.ReadAll(res.Body)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes())
	})
}

func TestContextThatEndsFreesThePlaceOfAResponseNobodyReads(t *testing.T) {
	for status, want := range map[int]spillway.Outcome{200: spillway.Ignored, 500: spillway.Failure, 503: spillway.Dropped} {
		synctest.Test(t, func(t *testing.T) {
			p := &gatetest.Recorder{}
			ctx, cancel := context.WithCancel(t.Context())
			rt := transport(t, responding(status, newBody("text", io.EOF)), nil, p)
			res, err := rt.RoundTrip(outgoing(ctx, nil))
			require.NoError(t, err)
			_, err = res.Body.Read(make([]byte, 1))
			require.NoError(t, err)
			require.Equal(t, 1, p.InFlight())
			cancel()
			synctest.Wait()
			require.Equal(t, []spillway.Outcome{want}, p.Outcomes())
			res.Body.Close()
			require.Equal(t, []spillway.Outcome{want}, p.Outcomes())
		})
	}
}

// watchedContext counts who waits for its end.
type watchedContext struct {
	context.Context
	waiting *int
}

// Value hides the context inside, which would be waited for directly.
func (watchedContext) Value(any) any { return nil }

func (c watchedContext) AfterFunc(func()) (stop func() bool) {
	*c.waiting++
	return func() bool {
		*c.waiting--
		return true
	}
}

func TestNobodyWaitsForTheContextOfAResponseThatWasRead(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting := 0
	rt := transport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
		return responding(http.StatusOK, newBody("", io.EOF)).RoundTrip(r)
	}), nil)
	res, err := rt.RoundTrip(outgoing(watchedContext{parent, &waiting}, nil))
	require.NoError(t, err)
	require.Equal(t, 1, waiting)
	_, _ = io.ReadAll(res.Body)
	require.Zero(t, waiting)
}

func TestLatencyLastsToTheEndOfTheBody(t *testing.T) {
	for atHeader, want := range map[bool]time.Duration{false: 5 * time.Second, true: 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			p := &gatetest.Recorder{}
			base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
				time.Sleep(2 * time.Second)
				return responding(http.StatusOK, newBody("", io.EOF)).RoundTrip(r)
			})
			res, err := transport(t, base, &httpgate.TransportOptions{AtHeader: atHeader}, p).RoundTrip(outgoing(t.Context(), nil))
			require.NoError(t, err)
			time.Sleep(3 * time.Second)
			_, _ = io.ReadAll(res.Body)
			require.Equal(t, want, p.Results()[0].Latency)
		})
	}
}

func TestHostKeyIsNormalised(t *testing.T) {
	for address, want := range map[string]string{
		"http://example.com/":              "example.com",
		"http://EXAMPLE.com/":              "example.com",
		"http://example.com:80/":           "example.com",
		"https://example.com:443/":         "example.com",
		"HTTPS://Example.COM:443/":         "example.com",
		"http://example.com:443/":          "example.com:443",
		"https://example.com:80/":          "example.com:80",
		"http://example.com:8080/":         "example.com:8080",
		"http://example.com./":             "example.com",
		"http://example.com.:80/":          "example.com",
		"http://example.com.:8080/":        "example.com:8080",
		"http://example.com:/":             "example.com",
		"http://user:pw@example.com/":      "example.com",
		"http://[::1]/":                    "[::1]",
		"http://[::1]:80/":                 "[::1]",
		"http://[FE80::80]/":               "[fe80::80]",
		"https://[::1]:8443/":              "[::1]:8443",
		"http://127.0.0.1:8080/path?q=:80": "127.0.0.1:8080",
	} {
		p := &gatetest.Recorder{}
		u, err := url.Parse(address)
		require.NoError(t, err)
		_, err = transport(t, responding(http.StatusOK, http.NoBody), nil, p).RoundTrip(&http.Request{URL: u})
		require.NoError(t, err)
		require.Equal(t, want, p.Requests()[0].Key, address)
	}
}

func FuzzHostKey(f *testing.F) {
	f.Add("http", "Example.com.:80")
	f.Add("https", "[::1]:443")
	f.Fuzz(func(t *testing.T, scheme, host string) {
		once := httpgate.HostKey(&http.Request{URL: &url.URL{Scheme: scheme, Host: host}})
		require.Equal(t, strings.ToLower(once), once)
		require.LessOrEqual(t, len(once), 3*len(host)) // lower case may take more bytes
	})
}

func TestTransportRequestOptionDecides(t *testing.T) {
	p := &gatetest.Recorder{}
	_, err := transport(t, responding(http.StatusOK, http.NoBody), &httpgate.TransportOptions{
		Request: func(r *http.Request) spillway.Request {
			return spillway.Request{Key: r.Method + " " + httpgate.HostKey(r), Priority: spillway.Critical}
		},
	}, p).RoundTrip(outgoing(t.Context(), nil))
	require.NoError(t, err)
	require.Equal(t, "POST server.test", p.Requests()[0].Key)
	require.Equal(t, spillway.Critical, p.Requests()[0].Priority)
}

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

func TestRetryBudgetFollowsA6(t *testing.T) {
	b, err := httpgate.NewRetryBudget(&httpgate.RetryBudgetOptions{MaxTokens: 10, TokenRatio: 0.1})
	require.NoError(t, err)
	require.True(t, b.Allow())
	for range 4 {
		b.Record(spillway.Failure)
	}
	require.True(t, b.Allow(), "6 of 10 left")
	b.Record(spillway.Dropped)
	require.False(t, b.Allow(), "5 of 10 left")
	b.Record(spillway.Ignored)
	require.False(t, b.Allow())
	b.Record(spillway.Success)
	require.InDelta(t, 5.1, b.Tokens(), 1e-9)
	require.True(t, b.Allow())
	for range 100 {
		b.Record(spillway.Failure)
	}
	require.Zero(t, b.Tokens())
	for range 1000 {
		b.Record(spillway.Success)
	}
	require.InDelta(t, 10, b.Tokens(), 1e-9)
}

func TestInvalidRetryBudgetOptionsAreNamed(t *testing.T) {
	nan := 0.0
	nan /= nan
	for want, o := range map[string]httpgate.RetryBudgetOptions{
		"httpgate: MaxTokens: must be from 1 to 1000, got -1":          {MaxTokens: -1},
		"httpgate: MaxTokens: must be from 1 to 1000, got 1001":        {MaxTokens: 1001},
		"httpgate: TokenRatio: must be from 0.001 to 1000, got -0.1":   {TokenRatio: -0.1},
		"httpgate: TokenRatio: must be from 0.001 to 1000, got 1001":   {TokenRatio: 1001},
		"httpgate: TokenRatio: must be from 0.001 to 1000, got 0.0009": {TokenRatio: 0.0009},
		"httpgate: TokenRatio: must be from 0.001 to 1000, got NaN":    {TokenRatio: nan},
	} {
		_, err := httpgate.NewRetryBudget(&o)
		require.EqualError(t, err, want)
	}
	b, err := httpgate.NewRetryBudget(&httpgate.RetryBudgetOptions{MaxTokens: 1000, TokenRatio: 0.1239})
	require.NoError(t, err)
	b.Record(spillway.Failure)
	b.Record(spillway.Success)
	require.InDelta(t, 999.123, b.Tokens(), 1e-9, "three decimals count")

	b, err = httpgate.NewRetryBudget(&httpgate.RetryBudgetOptions{TokenRatio: 1.001}) // 1.001 * 1000 < 1001
	require.NoError(t, err)
	b.Record(spillway.Failure)
	b.Record(spillway.Failure)
	b.Record(spillway.Success)
	require.InDelta(t, 9.001, b.Tokens(), 1e-9)
}

func TestRetryBudgetHearsOfEveryCallOnce(t *testing.T) {
	b, err := httpgate.NewRetryBudget(nil)
	require.NoError(t, err)
	o := &httpgate.TransportOptions{Budget: b}
	for range 3 {
		_, _ = transport(t, failing(errBroken), o).RoundTrip(outgoing(t.Context(), nil))
	}
	require.InDelta(t, 7, b.Tokens(), 1e-9)
	res, err := transport(t, responding(http.StatusOK, newBody("text", io.EOF)), o).RoundTrip(outgoing(t.Context(), nil))
	require.NoError(t, err)
	require.InDelta(t, 7, b.Tokens(), 1e-9, "not over yet")
	_, _ = io.ReadAll(res.Body)
	res.Body.Close()
	require.InDelta(t, 7.1, b.Tokens(), 1e-9)
	_, _ = transport(t, unsent(t), o, refuser{errFull}).RoundTrip(outgoing(t.Context(), nil))
	require.InDelta(t, 7.1, b.Tokens(), 1e-9, "a refusal of our own takes nothing")
}
