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
	"testing/synctest"
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
	proxy.Transport = spillway.Must(httpgate.NewTransport(shut(), nil, nil))
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
		{errors.New("http2: invalid Upgrade request header: [\"x\"]"), http.StatusBadRequest},
		{errors.New("client tried to switch to invalid protocol \"\\xe9\""), http.StatusBadRequest},
		{errFull, http.StatusServiceUnavailable},
		{errOverQuota, http.StatusTooManyRequests},
		{&url.Error{Op: "Get", Err: errOverQuota}, http.StatusTooManyRequests},
	} {
		w := httptest.NewRecorder()
		httpgate.ProxyError(nil)(w, httptest.NewRequest(http.MethodGet, "/", nil), c.err)
		require.Equal(t, c.want, w.Code, "%v", c.err)
		require.Equal(t, c.want == 503 || c.want == 429, w.Header().Get("Retry-After") != "", "%v", c.err)
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Content-Type", "application/grpc+proto")
	httpgate.ProxyError(nil)(w, r, lateError{})
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "4", w.Header().Get("Grpc-Status"), "its client would turn 504 into UNAVAILABLE")
	require.Equal(t, "application/grpc+proto", w.Header().Get("Content-Type"))
	var got error
	next := httpgate.ProxyError(func(_ http.ResponseWriter, _ *http.Request, err error) { got = err })
	next(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), errBroken)
	require.Equal(t, errBroken, got)
	got = nil
	next(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), errFull)
	require.NoError(t, got)
}

// A request that no proxy can pass on is its client's fault, also if the proxy has an answer of its own.
func TestBookedIsARequestThatCannotBePassedOnAsIgnored(t *testing.T) {
	answers := func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	for name, next := range map[string]func(http.ResponseWriter, *http.Request, error){"default": nil, "own answer": answers} {
		for _, upgrade := range []string{"\xe9", "websocket"} {
			proxy := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, ErrorHandler: httpgate.ProxyError(next)}
			proxy.Transport = failing(errors.New("http2: invalid Upgrade request header"))
			p := &gatetest.Recorder{}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", upgrade)
			middleware(t, nil, p).Handler(proxy).ServeHTTP(httptest.NewRecorder(), r)
			require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes(), "%s %q", name, upgrade)
		}
		proxy := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, ErrorHandler: httpgate.ProxyError(next), Transport: failing(errBroken)}
		p := &gatetest.Recorder{}
		serve(middleware(t, nil, p).Handler(proxy), "/")
		require.Equal(t, []spillway.Outcome{spillway.Failure}, p.Outcomes(), name)
	}
}

// A proxy breaks off its answer if net/http has dropped the body that it was still passing on, since the client sent it late.
func TestBookedIsAnAnswerBrokenOffForItsBodyAsIgnored(t *testing.T) {
	for _, c := range []struct {
		name, request string
		flush         bool
		read          error
		want          spillway.Outcome
	}{
		{"dropped when the answer began", "Content-Length: 1\r\n\r\na", true, http.ErrBodyReadAfterClose, spillway.Ignored},
		{"read in full", "Content-Length: 1\r\n\r\na", false, nil, spillway.Failure},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &gatetest.Recorder{}
				conn := pipe(t, middleware(t, nil, p).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.flush {
						w.(http.Flusher).Flush()
					}
					_, err := io.ReadAll(r.Body)
					assert.Equal(t, c.read, err)
					panic(http.ErrAbortHandler)
				})))
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+c.request)
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, []spillway.Outcome{c.want}, p.Outcomes())
			})
		})
	}
	p := &gatetest.Recorder{}
	h := middleware(t, nil, p).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = r.Body.Read(nil)
		panic(http.ErrAbortHandler)
	}))
	require.Panics(t, func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", iotest.ErrReader(http.ErrBodyReadAfterClose)))
	})
	require.Equal(t, []spillway.Outcome{spillway.Failure}, p.Outcomes(), "the handler itself closed the body")
}

// lateError is a deadline that has passed.
type lateError struct{}

func (lateError) Error() string        { return "late" }
func (lateError) Is(target error) bool { return target.Error() == "context deadline exceeded" }

// The header goes out with the first byte, however it is written, and its status is 200.
func TestBookedIs200WithoutAWriteHeader(t *testing.T) {
	for name, write := range map[string]func(w http.ResponseWriter){
		"nothing":     func(http.ResponseWriter) {},
		"Write":       func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
		"WriteString": func(w http.ResponseWriter) { _, _ = w.(io.StringWriter).WriteString("x") },
		"Flush":       func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"ReadFrom":    func(w http.ResponseWriter) { _, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("x")) },
		"ReadFrom, of which nothing arrived": func(w http.ResponseWriter) {
			_, err := w.(io.ReaderFrom).ReadFrom(struct{ io.Reader }{strings.NewReader("x")})
			assert.ErrorIs(t, err, errBroken)
		},
	} {
		var status int
		m := middleware(t, &httpgate.Options{Outcome: func(_ *http.Request, s int) spillway.Outcome {
			status = s
			return spillway.Success
		}})
		m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			write(w)
			w.WriteHeader(http.StatusBadGateway)
		})).ServeHTTP(&brokenSink{ResponseRecorder: httptest.NewRecorder(), broken: strings.Contains(name, "arrived")}, httptest.NewRequest(http.MethodGet, "/", nil))
		if name == "nothing" {
			require.Equal(t, http.StatusBadGateway, status, name)
			continue
		}
		require.Equal(t, http.StatusOK, status, name)
	}
}

// brokenSink is a ResponseWriter that loses all that it reads, if it is broken.
type brokenSink struct {
	*httptest.ResponseRecorder
	broken bool
}

func (s *brokenSink) ReadFrom(src io.Reader) (int64, error) {
	n, err := io.Copy(s.ResponseRecorder, src)
	if s.broken {
		return 0, errBroken
	}
	return n, err
}
