package httpgate_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// What is booked is what the client saw: a copy that fails before its first byte leaves the status open.
func TestBookedIsWhatTheClientSawAfterACopyThatFailedAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		src    io.Reader
		length string
		status int
		want   spillway.Outcome
	}{
		"fails at once":          {iotest.ErrReader(errBroken), "", http.StatusBadGateway, spillway.Failure},
		"empty":                  {strings.NewReader(""), "", http.StatusBadGateway, spillway.Failure},
		"fails later":            {io.MultiReader(strings.NewReader("x"), iotest.ErrReader(errBroken)), "", http.StatusOK, spillway.Success},
		"fails later, not alone": {struct{ io.Reader }{io.MultiReader(strings.NewReader("x"), iotest.ErrReader(errBroken))}, "", 200, spillway.Success},
		"more than announced":    {struct{ io.Reader }{strings.NewReader("longer than that")}, "3", http.StatusOK, spillway.Success},
	} {
		t.Run(name, func(t *testing.T) {
			p := &gatetest.Recorder{}
			h := middleware(t, nil, p).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.length != "" {
					w.Header().Set("Content-Length", c.length)
				}
				if n, err := w.(io.ReaderFrom).ReadFrom(c.src); err != nil || n == 0 {
					w.WriteHeader(http.StatusBadGateway)
				}
			}))
			srv := httptest.NewServer(h)
			srv.Config.ErrorLog = discardLog
			defer srv.Close()
			res, err := srv.Client().Get(srv.URL)
			require.NoError(t, err)
			res.Body.Close()
			require.Equal(t, c.status, res.StatusCode)
			require.Eventually(t, func() bool { return len(p.Outcomes()) == 1 }, 10*time.Second, time.Millisecond)
			require.Equal(t, []spillway.Outcome{c.want}, p.Outcomes())
		})
	}
}

// A refusal further in, or on the way to another service, is no failure of what is inside the outer gate, and reaches the
// client as a refusal.
func TestBookedIsARefusalInsideAsIgnored(t *testing.T) {
	upstream, err := url.Parse("http://upstream.test")
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.Transport = httpgate.Transport(shut(), nil, nil)
	proxy.ErrorHandler = httpgate.ProxyError(nil)
	client := &http.Client{Transport: proxy.Transport}
	for name, inner := range map[string]http.Handler{
		"handler": httpgate.Handler(shut(), nil)(unreachable(t)),
		"own answer": httpgate.Handler(shut(), &httpgate.Options{
			Refuse: func(w http.ResponseWriter, _ *http.Request, _ *spillway.Rejection) {
				w.WriteHeader(http.StatusServiceUnavailable)
			},
		})(unreachable(t)),
		"proxy": proxy,
		"client in a handler": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := client.Get("http://upstream.test/")
			assert.ErrorIs(t, err, spillway.ErrRejected)
			httpgate.WriteRefusal(w, r, err)
		}),
		"deeper": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			proxy.ServeHTTP(onlyUnwrapping{w}, r)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			p := &gatetest.Recorder{}
			res := serve(middleware(t, nil, p).Handler(inner), "/")
			require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
			require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes())
			if name != "own answer" {
				require.NotEmpty(t, res.Header.Get("Retry-After"))
			}
		})
	}
}

// onlyUnwrapping is a ResponseWriter of some middleware.
type onlyUnwrapping struct{ http.ResponseWriter }

func (w onlyUnwrapping) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestProxyErrorAnswers(t *testing.T) {
	late := lateContext{t.Context()}
	for _, c := range []struct {
		err  error
		want int
	}{
		{errBroken, http.StatusBadGateway},
		{&http.MaxBytesError{Limit: 1}, http.StatusRequestEntityTooLarge},
		{errors.Join(late.Err(), &http.MaxBytesError{Limit: 1}), http.StatusRequestEntityTooLarge},
		{lateError{}, http.StatusGatewayTimeout},
		{errFull, http.StatusServiceUnavailable},
		{errOverQuota, http.StatusTooManyRequests},
		{&url.Error{Op: "Get", Err: errOverQuota}, http.StatusTooManyRequests},
	} {
		w := httptest.NewRecorder()
		httpgate.ProxyError(nil)(w, httptest.NewRequest(http.MethodGet, "/", nil), c.err)
		require.Equal(t, c.want, w.Code, "%v", c.err)
		require.Equal(t, c.want == 503 || c.want == 429, w.Header().Get("Retry-After") != "", "%v", c.err)
	}
	var got error
	next := httpgate.ProxyError(func(_ http.ResponseWriter, _ *http.Request, err error) { got = err })
	next(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), errBroken)
	require.Equal(t, errBroken, got)
	got = nil
	next(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), errFull)
	require.NoError(t, got)
}

// lateError is a deadline that has passed.
type lateError struct{}

func (lateError) Error() string        { return "late" }
func (lateError) Is(target error) bool { return target.Error() == "context deadline exceeded" }
