package httpgate_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// get returns a GET with the given header.
func get(key, value string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set(key, value)
	return r
}

// tunnel returns an extended CONNECT, with which WebSockets begin over HTTP/2.
func tunnel() *http.Request {
	r := get("Accept", "*/*")
	r.Method, r.Header[":protocol"] = http.MethodConnect, []string{"websocket"}
	return r
}

// stream is the beginning of an event stream, flushed.
func stream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	_, _ = io.WriteString(w, "data: hello\n\n")
	w.(http.Flusher).Flush()
}

func TestEventStreamOpenForAnHourIsNotInFlightAndTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		m := middleware(t, nil, p)
		h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			assert.Equal(t, 1, p.InFlight(), "admitted like any other")
			assert.Zero(t, m.Stats().LongLived)
			stream(w)
			time.Sleep(time.Hour)
			w.(http.Flusher).Flush()
		}))
		go h.ServeHTTP(httptest.NewRecorder(), get("Accept", "text/event-stream"))
		time.Sleep(30 * time.Minute)
		require.Zero(t, p.InFlight())
		require.Equal(t, int64(1), m.Stats().LongLived)
		time.Sleep(time.Hour)
		require.Zero(t, m.Stats().LongLived)
		require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes(), "no latency to learn from, and ended once")
	})
}

func TestEventStreamOverTheNetwork(t *testing.T) {
	p := &gatetest.Recorder{}
	m := middleware(t, nil, p)
	release := make(chan struct{})
	returned := make(chan struct{})
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stream(w)
		<-release
	}))
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		returned <- struct{}{}
	})
	for url, client := range bothProtocols(t, outer) {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		require.NoError(t, err)
		req.Header.Set("Accept", "text/event-stream")
		res, err := client.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		line, err := bufio.NewReader(res.Body).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "data: hello\n", line)
		require.Zero(t, p.InFlight())
		require.Equal(t, int64(1), m.Stats().LongLived)
		release <- struct{}{}
		<-returned
		require.Zero(t, m.Stats().LongLived)
	}
}

func TestClaimMustProveTrueBeforeItLeavesTheGate(t *testing.T) {
	for name, c := range map[string]struct {
		r       *http.Request
		handler http.HandlerFunc
		leaves  bool
	}{
		"event stream":             {get("Accept", "text/event-stream"), func(w http.ResponseWriter, _ *http.Request) { stream(w) }, true},
		"event stream, parameters": {get("Accept", "Text/Event-Stream;q=1"), func(w http.ResponseWriter, _ *http.Request) { stream(w) }, true},
		"no flush":                 {get("Accept", "text/event-stream"), answer(http.StatusOK), false},
		"flush of something else": {get("Accept", "text/event-stream"), func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
		}, false},
		"not claimed":    {get("Accept", "*/*"), func(w http.ResponseWriter, _ *http.Request) { stream(w) }, false},
		"one of several": {get("Accept", "text/event-stream, application/json"), func(w http.ResponseWriter, _ *http.Request) { stream(w) }, false},
		"one of several lines": {func() *http.Request {
			r := get("Accept", "text/event-stream")
			r.Header.Add("Accept", "application/json")
			return r
		}(), func(w http.ResponseWriter, _ *http.Request) { stream(w) }, false},
		"POST": {func() *http.Request {
			r := get("Accept", "text/event-stream")
			r.Method = http.MethodPost
			return r
		}(), func(w http.ResponseWriter, _ *http.Request) { stream(w) }, false},
		"extended CONNECT":              {tunnel(), func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, true},
		"extended CONNECT, turned down": {tunnel(), answer(http.StatusNoContent), false},
		"extended CONNECT, redirected": {tunnel(), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusMultipleChoices)
			w.(http.Flusher).Flush()
		}, false},
		"upgrade claimed, not done": {get("Upgrade", "websocket"), answer(http.StatusOK), false},
		"h2c offered":               {get("Upgrade", "h2c"), func(w http.ResponseWriter, _ *http.Request) { stream(w) }, false},
		"101":                       {get("Upgrade", "websocket"), answer(http.StatusSwitchingProtocols), true},
		"101 not claimed":           {get("Accept", "*/*"), answer(http.StatusSwitchingProtocols), true},
		"101 too late": {get("Upgrade", "websocket"), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.WriteHeader(http.StatusSwitchingProtocols)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &gatetest.Recorder{}
			m := middleware(t, nil, p)
			m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.handler(w, r)
				if c.leaves {
					assert.Zero(t, p.InFlight())
					assert.Equal(t, int64(1), m.Stats().LongLived)
				} else {
					assert.Equal(t, 1, p.InFlight())
					assert.Zero(t, m.Stats().LongLived)
				}
			})).ServeHTTP(hijackable{httptest.NewRecorder()}, c.r)
			want := spillway.Success
			if c.leaves {
				want = spillway.Ignored
			}
			require.Equal(t, []spillway.Outcome{want}, p.Outcomes())
			require.Zero(t, m.Stats().LongLived)
		})
	}
}

func TestLongLivedOptionLeavesTheGateAtOnce(t *testing.T) {
	p := &gatetest.Recorder{}
	m := middleware(t, &httpgate.Options{LongLived: func(r *http.Request) bool { return r.URL.Path == "/poll" }}, p)
	m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		assert.Zero(t, p.InFlight())
		assert.Equal(t, int64(1), m.Stats().LongLived)
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/poll", nil))
	require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes())
	require.Zero(t, m.Stats().LongLived)
}

func TestLongLivedOptionReplacesTheClaims(t *testing.T) {
	p := &gatetest.Recorder{}
	m := middleware(t, &httpgate.Options{LongLived: func(*http.Request) bool { return false }}, p)
	m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stream(w)
		assert.Equal(t, 1, p.InFlight())
	})).ServeHTTP(httptest.NewRecorder(), get("Accept", "text/event-stream"))
	require.Equal(t, []spillway.Outcome{spillway.Success}, p.Outcomes())
}

func TestLongLivedRequestPassesTheGateFirst(t *testing.T) {
	m := middleware(t, &httpgate.Options{LongLived: func(*http.Request) bool { return true }}, refuser{errOverQuota})
	require.Equal(t, http.StatusTooManyRequests, serve(m.Handler(unreachable(t)), "/").StatusCode)
	require.Zero(t, m.Stats().LongLived)
}

func TestLongLivedPanicGivesBackItsPlace(t *testing.T) {
	for name, o := range map[string]*httpgate.Options{"claimed": nil, "by option": {LongLived: func(*http.Request) bool { return true }}} {
		t.Run(name, func(t *testing.T) {
			p := &gatetest.Recorder{}
			m := middleware(t, o, p)
			require.PanicsWithValue(t, "boom", func() {
				m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					stream(w)
					assert.Equal(t, int64(1), m.Stats().LongLived)
					panic("boom")
				})).ServeHTTP(httptest.NewRecorder(), get("Accept", "text/event-stream"))
			})
			require.Zero(t, m.Stats().LongLived)
			require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes())
		})
	}
}

// openStreams opens n event streams on m and returns a function that ends them.
func openStreams(t *testing.T, m *httpgate.Middleware, n int) (end func()) {
	t.Helper()
	release, opened, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stream(w)
		opened <- struct{}{}
		<-release
	}))
	for range n {
		go func() {
			h.ServeHTTP(httptest.NewRecorder(), get("Accept", "text/event-stream"))
			ended <- struct{}{}
		}()
		<-opened
	}
	return func() {
		close(release)
		for range n {
			<-ended
		}
	}
}

func TestMaxLongLivedRefusesOneMore(t *testing.T) {
	p := &gatetest.Recorder{}
	gate := spillway.New(p)
	var refused *spillway.Rejection
	m, err := httpgate.New(gate, &httpgate.Options{
		MaxLongLived: 2,
		Refuse: func(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection) {
			refused = rej
			httpgate.WriteRefusal(w, r, rej)
		},
	})
	require.NoError(t, err)
	end := openStreams(t, m, 2)
	w := httptest.NewRecorder()
	m.Handler(unreachable(t)).ServeHTTP(w, get("Upgrade", "websocket"))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, &spillway.Rejection{Policy: "httpgate", Reason: "too many long-lived"}, refused)
	require.Equal(t, httpgate.Stats{LongLived: 2, LongLivedRefused: 1}, m.Stats())
	require.Equal(t, int64(2), gate.Stats().Admitted, "the gate was not asked")

	require.Equal(t, http.StatusOK, serve(m.Handler(answer(http.StatusOK)), "/").StatusCode, "others are served")
	end()
	require.Zero(t, m.Stats().LongLived)
	require.Zero(t, gate.Stats().InFlight)
	w = httptest.NewRecorder()
	m.Handler(answer(http.StatusOK)).ServeHTTP(w, get("Upgrade", "websocket"))
	require.Equal(t, http.StatusOK, w.Code, "there is room again")
}

func TestLongLivedWithoutRoomStaysInFlight(t *testing.T) {
	p := &gatetest.Recorder{}
	m := middleware(t, &httpgate.Options{MaxLongLived: 1}, p)
	end := openStreams(t, m, 1)
	m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusSwitchingProtocols) // never claimed, so it could not be refused
		assert.Equal(t, 1, p.InFlight())
		assert.Equal(t, int64(1), m.Stats().LongLived)
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, int64(1), m.Stats().LongLived)
	end()
	require.Zero(t, m.Stats().LongLived)
	require.Zero(t, p.InFlight())
}

func TestGoneClientIsNotRefusedForWantOfRoom(t *testing.T) {
	p := &gatetest.Recorder{}
	m := middleware(t, &httpgate.Options{MaxLongLived: 1}, p)
	end := openStreams(t, m, 1)
	defer end()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	m.Handler(unreachable(t)).ServeHTTP(w, get("Accept", "text/event-stream").WithContext(ctx))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Zero(t, m.Stats().LongLivedRefused)
}

func TestHijackLeavesTheGateAndCountsUntilTheHandlerReturns(t *testing.T) {
	p := &gatetest.Recorder{}
	m := middleware(t, nil, p)
	hijacked, returned := make(chan struct{}), make(chan struct{})
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		close(hijacked)
		_, _ = io.Copy(conn, rw)
	}))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		close(returned)
	}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(t, err)
	<-hijacked
	require.Zero(t, p.InFlight())
	require.Equal(t, int64(1), m.Stats().LongLived)
	conn.Close()
	<-returned
	require.Zero(t, m.Stats().LongLived)
	require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes())
}
