package httpgate_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

var discardLog = log.New(io.Discard, "", 0)

func TestStrangersDoNotPassByTheGateWithTheDefaultExemptions(t *testing.T) {
	h := httpgate.Handler(shut(), nil)(answer(http.StatusNoContent))
	srv := httptest.NewServer(h)
	defer srv.Close()
	send := func(target, method string) int {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
		_, err = io.WriteString(c, method+" "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		return res.StatusCode
	}
	for _, target := range []string{
		"/debug/pprof/%2e%2e/%2e%2e/big.bin", "/debug/pprof/../../admin", "/debug/pprof/", "/debug/pprof/x", "/healthz?x", "/healthz?",
		"/%68ealthz", "/healthz/", "/healthz/..", "//healthz", "/./healthz", "/healthz%2f", "/healthz;x", "http://x/healthz", "http://other/metrics",
	} {
		require.Equal(t, http.StatusServiceUnavailable, send(target, "GET"), target)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get", "TRACE", "X"} {
		require.Equal(t, http.StatusServiceUnavailable, send("/healthz", method), method)
	}
	require.Equal(t, http.StatusNoContent, send("/healthz", "GET"))
	require.Equal(t, http.StatusNoContent, send("/metrics", "HEAD"))
}

// knownKeys returns the keys that key makes of many requests of a stranger, but for the empty one.
func knownKeys(t *testing.T, key func(*http.Request) string) map[string]bool {
	t.Helper()
	keys := map[string]bool{}
	for i := range 1100 {
		for _, method := range []string{"CONNECT", "GET", "X"} {
			for _, path := range []string{"/a/" + strings.Repeat("x", i), "/items//" + strings.Repeat("y", i), "/dir/../" + strings.Repeat("z", i), "/items/" + strings.Repeat("w", i), "/dir", "/dir/x"} {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Method, r.URL = method, &url.URL{Path: path}
				r.Pattern = path // as a ServeMux would set it for a CONNECT that it redirects
				keys[key(r)] = true
			}
		}
	}
	delete(keys, "")
	return keys
}

func TestStrangersMakeNoKeysByTheirTargets(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", fine)
	mux.HandleFunc("/dir/", fine)
	require.Equal(t, map[string]bool{"GET /items/{id}": true, "/dir/": true}, knownKeys(t, httpgate.PatternKey(mux)))

	r := httptest.NewRequest(http.MethodConnect, "/x", nil)
	r.Pattern = "/x"
	require.Empty(t, httpgate.PatternKey(nil)(r))
	r.Method, r.Pattern = http.MethodGet, "GET /items/{id}"
	require.Equal(t, "GET /items/{id}", httpgate.PatternKey(nil)(r))
}

// A redirect of the mux is quick, and says nothing of how quick the page is that it leads to.
func TestStrangersTeachNoLatencyByRedirects(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/slow/", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(100 * ms) }))
	synctest.Test(t, func(t *testing.T) {
		route := httpgate.PatternKey(mux)
		m := middleware(t, &httpgate.Options{Request: func(r *http.Request) spillway.Request {
			return spillway.Request{Route: route(r), Timeout: byT(r)}
		}}, late(t))
		h := m.Handler(mux)
		send := func(method, path, timeout string) int {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(method, "/", nil)
			r.URL.Path = path
			r.Header.Set("T", timeout)
			h.ServeHTTP(w, r)
			return w.Code
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { send("GET", "/slow/", "") })
		}
		wg.Wait()
		require.Equal(t, http.StatusServiceUnavailable, send("GET", "/slow/", "50"))
		for range 200 {
			send("GET", "/slow", "")
			send("CONNECT", "/slow", "")
		}
		require.Equal(t, http.StatusServiceUnavailable, send("GET", "/slow/", "50"), "as late as before")
	})
}

func TestStrangersTakeNoMoreThanTheirShareOfLongLivedPlaces(t *testing.T) {
	m := middleware(t, &httpgate.Options{
		Request: httpgate.KeyBy(httpgate.HeaderKey("X-Client")), MaxLongLived: 50,
	}, admitter{})
	release, opened := make(chan struct{}), make(chan int, 100)
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stream(w)
		opened <- http.StatusOK
		<-release
	}))
	open := func(client string) int {
		go func() {
			w := httptest.NewRecorder()
			r := get("Accept", "text/event-stream")
			r.Header.Set("X-Client", client)
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				opened <- w.Code
			}
		}()
		return <-opened
	}
	for i := range 100 {
		want := http.StatusOK
		if i >= 5 {
			want = http.StatusTooManyRequests
		}
		require.Equal(t, want, open("stranger"), "stream %d", i)
	}
	require.Equal(t, http.StatusOK, open("innocent"))
	require.Equal(t, int64(6), m.Stats().LongLived)
	require.Equal(t, int64(95), m.Stats().LongLivedRefused)
	close(release)
	require.Eventually(t, func() bool { return m.Stats().LongLived == 0 }, 10*time.Second, time.Millisecond)
	release = make(chan struct{})
	require.Equal(t, http.StatusOK, open("stranger"), "there is room again")
	close(release)
}

func TestStrangersOpenNoMoreHijackedConnectionsThanThereIsRoom(t *testing.T) {
	p := &gatetest.Recorder{}
	m := middleware(t, &httpgate.Options{MaxLongLived: 3, MaxLongLivedPerKey: 3}, p)
	conns := make(chan net.Conn, 100)
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		conns <- conn // which somebody else serves
	}))
	for _, serve := range []func(http.Handler) *httptest.Server{httptest.NewServer, httptest.NewTLSServer} {
		srv := serve(h)
		defer srv.Close()
		open := func(upgrade string) int {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
			require.NoError(t, err)
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", upgrade)
			if upgrade == "" {
				req.Header = http.Header{}
			}
			res, err := srv.Client().Do(req)
			require.NoError(t, err)
			if res.StatusCode != http.StatusSwitchingProtocols {
				res.Body.Close()
			}
			return res.StatusCode
		}
		for i := range 20 {
			want := http.StatusSwitchingProtocols
			if i >= 3 {
				want = http.StatusServiceUnavailable
			}
			require.Equal(t, want, open("echo"), "socket %d", i)
		}
		require.Equal(t, int64(3), m.Stats().LongLived)
		require.Zero(t, p.InFlight())
		open("") // not claimed, so it could not be refused
		require.Equal(t, 1, p.InFlight(), "what has no room stays in flight until it is closed")
		for range 4 {
			c := <-conns
			_ = c.Close()
			_ = c.Close()
		}
		require.Zero(t, m.Stats().LongLived)
		require.Zero(t, p.InFlight())
	}
	for _, o := range p.Outcomes() {
		require.Equal(t, spillway.Ignored, o)
	}
}

// A conn that nobody closes gives its place back when the garbage collector finds it, and all its methods are there.
func TestHijackedConnectionKeepsItsMethods(t *testing.T) {
	m := middleware(t, nil)
	got := make(chan net.Conn, 1)
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		assert.NoError(t, err)
		got <- conn
	}))
	srv := httptest.NewServer(h)
	defer srv.Close()
	client, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	_, err = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	conn := <-got
	require.Implements(t, (*interface {
		CloseWrite() error
		SetNoDelay(on bool) error
		io.ReaderFrom
		NetConn() net.Conn
	})(nil), conn)
	require.Equal(t, int64(1), m.Stats().LongLived)
	require.NoError(t, conn.Close())
	require.Zero(t, m.Stats().LongLived)

	h.ServeHTTP(hijackable{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil))
	piped := <-got
	require.NotNil(t, piped.(interface{ NetConn() net.Conn }).NetConn())
	require.NoError(t, piped.Close())
	require.Zero(t, m.Stats().LongLived)
}

func TestStrangersTakeNoPlaceByAFlushAfterTheHandlerReturned(t *testing.T) {
	p := &gatetest.Recorder{}
	m := middleware(t, nil, p)
	for _, how := range []string{"flush", "switch"} {
		var after func()
		m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			after = func() {
				if how == "switch" {
					w.WriteHeader(http.StatusSwitchingProtocols)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				w.(http.Flusher).Flush()
			}
		})).ServeHTTP(httptest.NewRecorder(), get("Accept", "text/event-stream"))
		after()
		require.Zero(t, m.Stats().LongLived)
	}
	require.Equal(t, []spillway.Outcome{spillway.Success, spillway.Success}, p.Outcomes())
}

// pipe starts a server with h whose connections hold next to nothing, and returns a connection to it.
func pipe(t *testing.T, h http.Handler) (client net.Conn) {
	t.Helper()
	client, server := net.Pipe()
	l := &oneConn{conn: server}
	srv := &http.Server{Handler: h, ErrorLog: discardLog}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { client.Close(); srv.Close() })
	return client
}

// The time that a client does not send or read is not the service's.
func TestStrangersTeachNoLatencyByStalls(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		write   func(w http.ResponseWriter, r *http.Request)
	}{
		"body that stalls": {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }},
		"not reading, Write": {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 1<<16))
		}},
		"not reading, small writes": {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", func(w http.ResponseWriter, _ *http.Request) {
			for range 1000 {
				_, _ = io.WriteString(w, "some hundred bytes, which alone never fill a buffer .............................................")
			}
		}},
		"not reading, ReadFrom": {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, struct{ io.Reader }{bytes.NewReader(make([]byte, 1<<16))})
		}},
		"not reading, Flush": {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "x")
			w.(http.Flusher).Flush()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &gatetest.Recorder{}
				conn := pipe(t, middleware(t, nil, p).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(20 * ms) // the work
					c.write(w, r)
				})))
				_, err := io.WriteString(conn, c.request)
				require.NoError(t, err)
				time.Sleep(10 * time.Second)
				require.Equal(t, 1, p.InFlight())
				if strings.Contains(name, "body") {
					_, err = io.WriteString(conn, "body")
					require.NoError(t, err)
				}
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				synctest.Wait()
				require.Equal(t, []spillway.Result{{Outcome: spillway.Success, Latency: 20 * ms}}, p.Results())
			})
		})
	}
}

// Requests that stall and are given up neither count as overload nor teach that a route is slow.
func TestStrangersTeachNoLatenessByStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		m := middleware(t, byClient(byT), late(t), p)
		h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			time.Sleep(10 * ms)
		}))
		teach(h)
		for range 300 {
			r := httptest.NewRequest(http.MethodPost, "/", slowReader{time.Minute})
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		require.Equal(t, http.StatusOK, saying(h, "T", "20"))
		for _, res := range p.Results() {
			require.Equal(t, spillway.Result{Outcome: spillway.Success, Latency: 10 * ms}, res)
		}
	})
}

// slowReader ends after a while.
type slowReader struct{ after time.Duration }

func (s slowReader) Read([]byte) (int, error) {
	time.Sleep(s.after)
	return 0, io.EOF
}

// Whoever is outside of the gate sees what the handlers inside noted on the request, also if it has a body, and the server
// removes the files of its form.
func TestRequestWithABodyIsTheSameOutside(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /items/{id}", func(_ http.ResponseWriter, r *http.Request) { assert.NoError(t, r.ParseForm()) })
	plain := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { assert.NoError(t, r.ParseMultipartForm(1)) })

	r := httptest.NewRequest(http.MethodPost, "/items/7?a=1", strings.NewReader("b=2"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	body := r.Body
	httpgate.Handler(spillway.New(), nil)(mux).ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, "POST /items/{id}", r.Pattern)
	require.Equal(t, "7", r.PathValue("id"))
	require.Equal(t, url.Values{"a": {"1"}, "b": {"2"}}, r.Form)
	require.Equal(t, url.Values{"b": {"2"}}, r.PostForm)
	require.Equal(t, body, r.Body)

	r = httptest.NewRequest(http.MethodPost, "/", strings.NewReader("--x\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\ntext\r\n--x--\r\n"))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	httpgate.Handler(spillway.New(), nil)(plain).ServeHTTP(httptest.NewRecorder(), r)
	require.Len(t, r.MultipartForm.File["f"], 1)
	require.NoError(t, r.MultipartForm.RemoveAll())
}

// A client that says it speaks gRPC makes no names for latencies by its targets, so the routes of the others keep theirs.
func TestStrangersMakeNoNamesForLatenciesByTheirTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		mux := http.NewServeMux()
		mux.HandleFunc("POST /items/{id}", answer(http.StatusOK))
		mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(300 * ms):
			case <-r.Context().Done():
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		h := middleware(t, nil, p).Handler(mux)
		for i := range 1100 { // more than there is room for
			r := httptest.NewRequest(http.MethodPost, fmt.Sprint("/items/", i), nil)
			r.Header.Set("Content-Type", "application/grpc")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		for range 10 {
			serve(h, "/slow")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 130*ms)
		defer cancel()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/slow", nil).WithContext(ctx))
		require.Equal(t, spillway.Ignored, p.Outcomes()[len(p.Outcomes())-1])
	})
}

// The time of a handler is latency, also while the answer is copied from a reader of its own, and after it has read a body.
func TestLatencyIsTheTimeOfTheHandler(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(w http.ResponseWriter, r *http.Request)
		want  time.Duration
	}{
		"ReadFrom": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, struct{ io.Reader }{io.MultiReader(slowReader{20 * ms}, slowReader{30 * ms})})
		}, 50 * ms},
		"a body": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			time.Sleep(40 * ms)
		}, 40 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &gatetest.Recorder{}
				conn := pipe(t, middleware(t, nil, p).Handler(http.HandlerFunc(c.serve)))
				_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na")
				require.NoError(t, err)
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				time.Sleep(time.Second)
				require.Equal(t, []spillway.Result{{Outcome: spillway.Success, Latency: c.want}}, p.Results())
			})
		})
	}
}

// A reverse proxy may return while its Transport still reads the body: the end of that Read races with nothing.
func TestReadThatOutlivesItsHandler(t *testing.T) {
	for _, closes := range []bool{true, false} {
		reading := make(chan struct{})
		r := httptest.NewRequest(http.MethodPost, "/x", nil)
		body := &lockedBody{r: r, reading: reading}
		r.Body = body
		mux := http.NewServeMux()
		mux.HandleFunc("POST /{id}", func(_ http.ResponseWriter, r *http.Request) {
			body.done.Go(func() { _, _ = io.Copy(io.Discard, r.Body) })
			<-reading
			if closes {
				_ = r.Body.Close()
			}
		})
		p := &gatetest.Recorder{}
		middleware(t, nil, p).Handler(mux).ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, "POST /{id}", r.Pattern)
		require.Zero(t, p.InFlight())
		body.done.Wait()
	}
}

// lockedBody sets the trailer at its end, and has a Close that waits for a Read, as the body of net/http.
type lockedBody struct {
	mu      sync.Mutex
	r       *http.Request
	reading chan struct{}
	done    sync.WaitGroup
}

func (b *lockedBody) Read([]byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.reading)
	runtime.Gosched()
	b.r.Trailer = http.Header{"X": {"y"}}
	return 0, io.EOF
}

func (b *lockedBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return nil
}

// Latencies are learned per route of Options.Request, if there is one.
func TestMinBudgetIsThatOfTheRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		h := middleware(t, &httpgate.Options{Request: func(r *http.Request) spillway.Request {
			return spillway.Request{Route: r.URL.Path}
		}}, p).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(300 * ms):
			case <-r.Context().Done():
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		for range 10 {
			serve(h, "/known")
		}
		for path, want := range map[string]spillway.Outcome{"/known": spillway.Ignored, "/unknown": spillway.Dropped} {
			ctx, cancel := context.WithTimeout(t.Context(), 130*ms)
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx))
			cancel()
			require.Equal(t, want, p.Outcomes()[len(p.Outcomes())-1], path)
		}
	})
}

// A deadline that passes while Options.Outcome runs is a missed one.
func TestDeadlineThatPassesWhileTheOutcomeIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		h := middleware(t, &httpgate.Options{Outcome: func(r *http.Request, _ int) spillway.Outcome {
			<-r.Context().Done()
			return spillway.Failure
		}}, p).Handler(answer(http.StatusOK))
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
		require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes())
	})
}

// By default a missed deadline counts if it left 100 ms, without the time that the client kept the handler waiting.
func TestDeadlineCountsFromMinBudgetOn(t *testing.T) {
	for _, c := range []struct {
		within, stalls time.Duration
		want           spillway.Outcome
	}{
		{99 * ms, 0, spillway.Ignored},
		{100 * ms, 0, spillway.Dropped},
		{200 * ms, 101 * ms, spillway.Ignored},
		{200 * ms, 99 * ms, spillway.Dropped},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &gatetest.Recorder{}
			h := middleware(t, nil, p).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				<-r.Context().Done()
			}))
			ctx, cancel := context.WithTimeout(t.Context(), c.within)
			defer cancel()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", slowReader{c.stalls}).WithContext(ctx))
			require.Equal(t, []spillway.Outcome{c.want}, p.Outcomes(), "%v of %v", c.stalls, c.within)
		})
	}
}
