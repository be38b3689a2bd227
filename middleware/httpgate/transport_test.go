package httpgate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// roundTripFunc is a RoundTripper that is a function.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// responding returns a RoundTripper that answers everything with a status and a body.
func responding(status int, body io.ReadCloser) http.RoundTripper {
	return roundTripFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: body, Request: r}, nil
	})
}

// failing returns a RoundTripper that answers everything with an error.
func failing(err error) http.RoundTripper {
	return roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, err })
}

func unsent(t *testing.T) http.RoundTripper {
	t.Helper()
	return roundTripFunc(func(*http.Request) (*http.Response, error) {
		t.Error("a refused request was sent")
		return nil, errors.New("sent")
	})
}

// outgoing returns a request to http://server.test with the given context.
func outgoing(ctx context.Context, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://server.test/", body)
	if err != nil {
		panic(err)
	}
	return r
}

// transport returns a RoundTripper behind policies.
func transport(t *testing.T, base http.RoundTripper, o *httpgate.TransportOptions, policies ...spillway.Policy) *httpgate.Transport {
	t.Helper()
	rt, err := httpgate.NewTransport(spillway.New(policies...), base, o)
	require.NoError(t, err)
	return rt
}

// A fakeBody serves text, then an error; it remembers whether it was closed.
type fakeBody struct {
	text   *strings.Reader
	err    error
	closed int
}

func newBody(text string, err error) *fakeBody {
	return &fakeBody{text: strings.NewReader(text), err: err}
}

func (b *fakeBody) Read(p []byte) (int, error) {
	if b.text.Len() == 0 {
		return 0, b.err
	}
	return b.text.Read(p)
}

func (b *fakeBody) Close() error {
	b.closed++
	return nil
}

var errBroken = errors.New("connection reset by peer")

func TestInvalidTransportOptionsAreNamed(t *testing.T) {
	_, err := httpgate.NewTransport(nil, nil, nil)
	require.EqualError(t, err, "httpgate: gate: must be a Gate, got nil")
	_, err = httpgate.NewTransport(spillway.New(), nil, &httpgate.TransportOptions{MinBudget: -time.Second})
	require.EqualError(t, err, "httpgate: MinBudget: must be at least 0, got -1s")
	require.PanicsWithError(t, "httpgate: gate: must be a Gate, got nil", func() { spillway.Must(httpgate.NewTransport(nil, nil, nil)) })
}

func TestRefusedCallIsNotSentAndItsBodyIsClosed(t *testing.T) {
	sent := newBody("upload", io.EOF)
	res, err := transport(t, unsent(t), nil, refuser{errFull}).RoundTrip(outgoing(t.Context(), sent))
	require.Nil(t, res)
	require.Same(t, errFull, err)
	require.Equal(t, 1, sent.closed)

	res, err = transport(t, unsent(t), nil, refuser{errFull}).RoundTrip(outgoing(t.Context(), nil)) // no body to close
	require.Nil(t, res)
	require.Same(t, errFull, err)
}

func TestCallWhoseContextHasEndedIsNotSentAndItsBodyIsClosed(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sent := newBody("upload", io.EOF)
	_, err := transport(t, unsent(t), nil, &gatetest.Recorder{}).RoundTrip(outgoing(ctx, sent))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, sent.closed)
}

func TestClientSeesTheRejectionAndTheAddress(t *testing.T) {
	client := &http.Client{Transport: transport(t, unsent(t), nil, refuser{errFull})}
	_, err := client.Get("http://server.test/path")
	require.ErrorIs(t, err, spillway.ErrRejected)
	var rej *spillway.Rejection
	require.ErrorAs(t, err, &rej)
	require.Same(t, errFull, rej)
	var where *url.Error
	require.ErrorAs(t, err, &where)
	require.Equal(t, "http://server.test/path", where.URL)
	require.False(t, where.Temporary())
	require.False(t, where.Timeout())
}

func TestRequestIsPassedOnUnchanged(t *testing.T) {
	r := outgoing(t.Context(), strings.NewReader("body"))
	r.Header.Set("A", "b")
	before := r.Clone(t.Context())
	base := roundTripFunc(func(got *http.Request) (*http.Response, error) {
		if got != r {
			t.Error("another request was sent")
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	_, err := transport(t, base, nil, &gatetest.Recorder{}).RoundTrip(r)
	require.NoError(t, err)
	require.Equal(t, before.Header, r.Header)
	require.Equal(t, before.URL, r.URL)
	require.Equal(t, before.Host, r.Host)
	require.Equal(t, before.Method, r.Method)
}

func TestPanicOrGoexitInTheBaseGivesBack(t *testing.T) {
	p := &gatetest.Recorder{}
	require.PanicsWithValue(t, "boom", func() {
		_, _ = transport(t, roundTripFunc(func(*http.Request) (*http.Response, error) { panic("boom") }), nil, p).
			RoundTrip(outgoing(t.Context(), nil))
	})
	rt := transport(t, roundTripFunc(func(*http.Request) (*http.Response, error) {
		runtime.Goexit()
		return nil, nil
	}), nil, p)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = rt.RoundTrip(outgoing(t.Context(), nil)) })
	wg.Wait()
	require.Equal(t, []spillway.Outcome{spillway.Failure, spillway.Failure}, p.Outcomes())
}

func TestPanicInOutcomeOfACallGivesBack(t *testing.T) {
	for name, after := range map[string]int{"at the header": 0, "in the body": 1} {
		t.Run(name, func(t *testing.T) {
			p, asked := &gatetest.Recorder{}, 0
			rt := transport(t, responding(http.StatusOK, newBody("", errBroken)), &httpgate.TransportOptions{
				Outcome: func(*http.Request, *http.Response, error) spillway.Outcome {
					if asked == after {
						panic("boom")
					}
					asked++
					return spillway.Success
				},
			}, p)
			require.PanicsWithValue(t, "boom", func() {
				res, _ := rt.RoundTrip(outgoing(t.Context(), nil))
				_, _ = io.ReadAll(res.Body)
			})
			require.Equal(t, []spillway.Outcome{spillway.Failure}, p.Outcomes())
		})
	}
}

func TestOutcomeOfACallIsAskedForItsHeaderAndForItsBrokenBody(t *testing.T) {
	var asked []string
	p := &gatetest.Recorder{}
	rt := transport(t, responding(http.StatusOK, newBody("", errBroken)), &httpgate.TransportOptions{
		Outcome: func(_ *http.Request, res *http.Response, err error) spillway.Outcome {
			asked = append(asked, fmt.Sprintf("%d %v", res.StatusCode, err))
			if err != nil {
				return spillway.Dropped
			}
			return spillway.Success
		},
	}, p)
	res, err := rt.RoundTrip(outgoing(t.Context(), nil))
	require.NoError(t, err)
	_, _ = io.ReadAll(res.Body)
	require.Equal(t, []string{"200 <nil>", "200 " + errBroken.Error()}, asked)
	require.Equal(t, []spillway.Outcome{spillway.Dropped}, p.Outcomes())
}

func TestRequestThatCannotBeSentIsNotGated(t *testing.T) {
	p := &gatetest.Recorder{}
	rt := transport(t, nil, nil, p)
	for _, r := range []*http.Request{{}, {URL: &url.URL{Scheme: "http", Path: "/"}}} {
		_, err := rt.RoundTrip(r)
		require.Error(t, err)
		require.NotErrorIs(t, err, spillway.ErrRejected)
	}
	require.Empty(t, p.Requests())
}

func TestEveryAttemptIsACallOfItsOwn(t *testing.T) {
	p := &gatetest.Recorder{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/end" {
			http.Redirect(w, r, "/end", http.StatusFound)
		}
	}))
	defer srv.Close()
	client := &http.Client{Transport: transport(t, nil, nil, p)}
	res, err := client.Get(srv.URL)
	require.NoError(t, err)
	res.Body.Close()
	require.Len(t, p.Requests(), 2)
	require.Zero(t, p.InFlight())
}

// idleCloser is a RoundTripper that can close its idle connections.
type idleCloser struct {
	http.RoundTripper
	closed *int
}

func (c idleCloser) CloseIdleConnections() { *c.closed++ }

func TestCloseIdleConnectionsReachesTheBase(t *testing.T) {
	closed := 0
	client := &http.Client{Transport: transport(t, idleCloser{nil, &closed}, nil)}
	client.CloseIdleConnections()
	require.Equal(t, 1, closed)
	transport(t, failing(errBroken), nil).CloseIdleConnections() // it has none to close
}

func TestTransportOverTheNetwork(t *testing.T) {
	p := &gatetest.Recorder{}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
		if r.URL.Path == "/abort" {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	for address, client := range bothProtocols(t, h) {
		client.Transport = transport(t, client.Transport, nil, p)
		res, err := client.Post(address, "text/plain", strings.NewReader("echo"))
		require.NoError(t, err)
		got, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, "echo", string(got))
		res.Body.Close()
		require.Equal(t, spillway.Success, p.Outcomes()[len(p.Outcomes())-1])

		res, err = client.Post(address+"/abort", "text/plain", strings.NewReader("echo"))
		require.NoError(t, err)
		_, err = io.ReadAll(res.Body)
		require.Error(t, err)
		res.Body.Close()
		require.Equal(t, spillway.Failure, p.Outcomes()[len(p.Outcomes())-1])
		require.Zero(t, p.InFlight())
		client.CloseIdleConnections()
	}
	require.Len(t, p.Outcomes(), 4)
}

func TestConnectionRefusedIsAFailure(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln.Close()
	p := &gatetest.Recorder{}
	client := &http.Client{Transport: transport(t, nil, nil, p)}
	_, err = client.Get("http://" + ln.Addr().String())
	require.Error(t, err)
	require.Equal(t, []spillway.Outcome{spillway.Failure}, p.Outcomes())
}
