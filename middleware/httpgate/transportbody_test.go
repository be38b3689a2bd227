package httpgate_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestPlaceIsFreedAtTheEndOfTheBodyExactlyOnce(t *testing.T) {
	for name, c := range map[string]struct {
		body *fakeBody
		end  func(res *http.Response)
		want spillway.Outcome
	}{
		"EOF":            {newBody("text", io.EOF), func(res *http.Response) { _, _ = io.ReadAll(res.Body) }, spillway.Success},
		"Close":          {newBody("text", io.EOF), func(res *http.Response) { res.Body.Close() }, spillway.Success},
		"error":          {newBody("text", errBroken), func(res *http.Response) { _, _ = io.ReadAll(res.Body) }, spillway.Failure},
		"unexpected EOF": {newBody("text", io.ErrUnexpectedEOF), func(res *http.Response) { _, _ = io.ReadAll(res.Body) }, spillway.Failure},
	} {
		t.Run(name, func(t *testing.T) {
			p := &gatetest.Recorder{}
			res, err := transport(t, responding(http.StatusOK, c.body), nil, p).RoundTrip(outgoing(t.Context(), nil))
			require.NoError(t, err)
			require.Equal(t, 1, p.InFlight())
			_, _ = res.Body.Read(make([]byte, 2))
			require.Equal(t, 1, p.InFlight(), "there is more to read")
			c.end(res)
			require.Zero(t, p.InFlight())
			require.Equal(t, []spillway.Outcome{c.want}, p.Outcomes())
			_, _ = res.Body.Read(make([]byte, 2))
			res.Body.Close()
			res.Body.Close()
			require.Equal(t, []spillway.Outcome{c.want}, p.Outcomes(), "ended once")
			require.Positive(t, c.body.closed)
		})
	}
}

func TestBodyPassesOnWhatItReadsAndItsErrors(t *testing.T) {
	res, err := transport(t, responding(http.StatusOK, newBody("text", errBroken)), nil).RoundTrip(outgoing(t.Context(), nil))
	require.NoError(t, err)
	got, err := io.ReadAll(res.Body)
	require.Equal(t, "text", string(got))
	require.Equal(t, errBroken, err)
}

func TestWhatTheHeaderHeldAgainstTheServerStands(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &gatetest.Recorder{}
	res, err := transport(t, responding(http.StatusBadGateway, newBody("", errBroken)), nil, p).RoundTrip(outgoing(ctx, nil))
	require.NoError(t, err)
	cancel()
	_, _ = io.ReadAll(res.Body)
	require.Equal(t, []spillway.Outcome{spillway.Failure}, p.Outcomes())
}

func TestCallWithoutABodyEndsWithTheHeader(t *testing.T) {
	for name, body := range map[string]io.ReadCloser{"NoBody": http.NoBody, "nil": nil} {
		p := &gatetest.Recorder{}
		res, err := transport(t, responding(http.StatusOK, body), nil, p).RoundTrip(outgoing(t.Context(), nil))
		require.NoError(t, err)
		require.Equal(t, body, res.Body, name)
		require.Equal(t, []spillway.Outcome{spillway.Success}, p.Outcomes(), name)
	}
}

func TestEventStreamEndsWithTheHeader(t *testing.T) {
	p := &gatetest.Recorder{}
	inner := newBody("data: x", io.EOF)
	base := roundTripFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: inner}, nil
	})
	res, err := transport(t, base, nil, p).RoundTrip(outgoing(t.Context(), nil))
	require.NoError(t, err)
	require.Same(t, inner, res.Body)
	require.Equal(t, []spillway.Outcome{spillway.Success}, p.Outcomes())
}

func TestAtHeaderEndsTheCallWithTheHeader(t *testing.T) {
	p := &gatetest.Recorder{}
	inner := newBody("text", errBroken)
	res, err := transport(t, responding(http.StatusOK, inner), &httpgate.TransportOptions{AtHeader: true}, p).
		RoundTrip(outgoing(t.Context(), nil))
	require.NoError(t, err)
	require.Same(t, inner, res.Body)
	_, _ = io.ReadAll(res.Body)
	require.Equal(t, []spillway.Outcome{spillway.Success}, p.Outcomes())
}

// writableBody is what a 101 has for a body.
type writableBody struct{ *fakeBody }

func (writableBody) Write(p []byte) (int, error) { return len(p), nil }

func TestSwitchedProtocolKeepsABodyThatCanBeWritten(t *testing.T) {
	p := &gatetest.Recorder{}
	inner := writableBody{newBody("", io.EOF)}
	res, err := transport(t, responding(http.StatusSwitchingProtocols, inner), nil, p).RoundTrip(outgoing(t.Context(), nil))
	require.NoError(t, err)
	require.Implements(t, (*io.ReadWriteCloser)(nil), res.Body)
	require.Equal(t, inner, res.Body)
	require.Equal(t, []spillway.Outcome{spillway.Success}, p.Outcomes())
}

func TestForgottenResponseGivesBackItsPlace(t *testing.T) {
	p := &gatetest.Recorder{}
	rt := transport(t, responding(http.StatusOK, newBody("text", io.EOF)), nil, p)
	func() {
		res, err := rt.RoundTrip(outgoing(context.Background(), nil))
		require.NoError(t, err)
		require.NotNil(t, res)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return p.InFlight() == 0
	}, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return rt.Stats().Leaked == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, []spillway.Outcome{spillway.Success}, p.Outcomes())
}

func TestClosedResponseIsNotCountedAsLeaked(t *testing.T) {
	rt := transport(t, responding(http.StatusOK, newBody("text", io.EOF)), nil)
	for range 100 {
		res, err := rt.RoundTrip(outgoing(t.Context(), nil))
		require.NoError(t, err)
		res.Body.Close()
	}
	runtime.GC()
	runtime.GC()
	require.Zero(t, rt.Stats().Leaked)
}
