package httpgate_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
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

func TestDeadlineIsAFailureOnlyAfterAMinBudget(t *testing.T) {
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
			_, err := transport(t, roundTripFunc(waiting), &httpgate.TransportOptions{MinBudget: c.fair}, p).
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
	_, _ = transport(t, failing(errBroken), &httpgate.TransportOptions{MinBudget: time.Hour}, p).RoundTrip(outgoing(ctx, nil))
	require.Equal(t, []spillway.Outcome{spillway.Failure}, p.Outcomes())
}

// A server that lets a fair deadline pass has failed once it has the body, and not while it waits for the body.
func TestDeadlineCountsOnceTheServerHasTheBody(t *testing.T) {
	for _, c := range []struct {
		stall time.Duration
		want  spillway.Outcome
	}{{0, spillway.Failure}, {time.Minute, spillway.Ignored}} {
		synctest.Test(t, func(t *testing.T) {
			p := &gatetest.Recorder{}
			hangs := roundTripFunc(func(r *http.Request) (*http.Response, error) {
				go func() { _, _ = io.Copy(io.Discard, r.Body) }()
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 200*ms)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, origin, io.NopCloser(slowReader{c.stall}))
			require.NoError(t, err)
			_, err = transport(t, hangs, nil, p).RoundTrip(r)
			require.Error(t, err)
			require.Equal(t, []spillway.Outcome{c.want}, p.Outcomes(), "%v", c.stall)
			time.Sleep(2 * time.Minute) // until the body ends
		})
	}
}

// lateContext has a deadline that has passed, but has not ended yet: its timer is late.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Unix(0, 0), true }

// A soonContext is a lateContext whose deadline passes in 50 ms.
type soonContext struct {
	context.Context
	by time.Time
}

func (c soonContext) Deadline() (time.Time, bool) { return c.by, true }

func TestDeadlineIsSeenThoughTheTimerOfTheContextIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		cancel := make(chan struct{})
		close(cancel) // by the other timer, that of the client
		soon := func() *http.Request {
			r := outgoing(soonContext{t.Context(), time.Now().Add(50 * time.Millisecond)}, nil)
			r.Cancel = cancel //nolint:staticcheck // deprecated, yet in use
			return r
		}
		r := soon()
		_, _ = transport(t, roundTripFunc(func(*http.Request) (*http.Response, error) {
			time.Sleep(60 * time.Millisecond)
			return nil, errBroken
		}), nil, p).RoundTrip(r)
		require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes(), "it had too little time")
		require.Equal(t, spillway.Failure, httpgate.DefaultTransportOutcome(r, nil, errBroken), "it was no cancellation")

		_, err := transport(t, responding(http.StatusOK, http.NoBody), nil, p).RoundTrip(r)
		require.ErrorIs(t, err, context.DeadlineExceeded, "it is not sent again")
		require.NotErrorIs(t, err, spillway.ErrRejected)
		_, err = transport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
			time.Sleep(60 * time.Millisecond)
			return responding(http.StatusOK, http.NoBody).RoundTrip(r)
		}), nil, p).RoundTrip(soon())
		require.NoError(t, err)
		require.Equal(t, []spillway.Outcome{spillway.Ignored, spillway.Success}, p.Outcomes(), "answered all the same")
	})
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
			Transport: transport(t, nil, &httpgate.TransportOptions{MinBudget: fair}, p),
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
				return responding(http.StatusOK, slowBody{newBody("", io.EOF)}).RoundTrip(r)
			})
			res, err := transport(t, base, &httpgate.TransportOptions{AtHeader: atHeader}, p).RoundTrip(outgoing(t.Context(), nil))
			require.NoError(t, err)
			_, _ = io.ReadAll(res.Body)
			require.Equal(t, want, p.Results()[0].Latency)
		})
	}
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

// slowBody takes 3 s for each Read.
type slowBody struct{ *fakeBody }

func (b slowBody) Read(p []byte) (int, error) {
	time.Sleep(3 * time.Second)
	return b.fakeBody.Read(p)
}
