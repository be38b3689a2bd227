package httpgate_test

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

var (
	differentialScripts = flag.Int("differential", 300, "scripts of TestBookedIsWhatTheClientSaw per protocol; 5000 in the nightly form")
	differentialSeed    = flag.Uint64("differential.seed", 1, "seed of the first script")
)

// A script is what a handler does, step by step, and how its client asks.
type script struct {
	steps   []step
	method  string
	body    string
	limit   int64 // of an http.MaxBytesReader in the handler, or 0
	outside bool  // a TimeoutHandler is around the gate
	inside  bool  // a TimeoutHandler is between the gate and the handler
	stopped *atomic.Int64
}

// A step is one thing that a handler does to its writer.
type step struct {
	name string
	do   func(w http.ResponseWriter, r *http.Request)
}

func (s script) String() string {
	var names []string
	for _, st := range s.steps {
		names = append(names, st.name)
	}
	return fmt.Sprintf("%s body %d limit %d outside %v inside %v: %s", s.method, len(s.body), s.limit, s.outside, s.inside, strings.Join(names, "; "))
}

var statuses = []int{200, 201, 204, 301, 304, 400, 404, 413, 429, 500, 501, 502, 503, 504}

// randomScript returns a script of up to six steps, some of which end it.
func randomScript(rng *rand.Rand) script {
	s := script{method: []string{"GET", "POST", "HEAD"}[rng.IntN(3)], outside: rng.IntN(8) == 0, inside: rng.IntN(8) == 0, stopped: &atomic.Int64{}}
	if s.method == "POST" {
		s.body = strings.Repeat("b", []int{0, 1, 10, 1000, 70_000}[rng.IntN(5)])
		if rng.IntN(3) == 0 {
			s.limit = []int64{5, 100, 1 << 20}[rng.IntN(3)]
		}
	}
	for range 1 + rng.IntN(6) {
		st := randomStep(rng, s.limit)
		if st.name == "Goexit" && (s.outside || s.inside) {
			continue // http.TimeoutHandler would wait for its end
		}
		if st.name == "103" && s.outside {
			continue // http.TimeoutHandler takes it for the final status, and the one that follows for superfluous
		}
		if strings.HasPrefix(st.name, "read") {
			// Before there is an answer: after one above 299, a client of HTTP/2 sends no more of its body, and does not say so.
			s.steps = slices.Insert(s.steps, 0, st)
			continue
		}
		s.steps = append(s.steps, st)
	}
	return s
}

func randomStep(rng *rand.Rand, limit int64) step {
	status := statuses[rng.IntN(len(statuses))]
	size := []int{0, 1, 100, 2048, 2049, 5000, 40_000}[rng.IntN(7)]
	text := strings.Repeat("x", size)
	switch rng.IntN(20) {
	case 0, 1, 2:
		return step{fmt.Sprint("WriteHeader ", status), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }}
	case 3, 4:
		return step{fmt.Sprint("Write ", size), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }}
	case 5:
		return step{fmt.Sprint("WriteString ", size), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }}
	case 6:
		return step{"Flush", func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }}
	case 7:
		return step{"103", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }}
	case 8, 9:
		return copying(rng, status, text)
	case 10:
		return step{"http.Error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", status) }}
	case 11:
		return step{"trailer announced", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Trailer", "X-T") }}
	case 12:
		return step{"trailer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-T", "1")
			w.Header().Set(http.TrailerPrefix+"X-U", "2")
		}}
	case 13:
		length := []string{"1", "100", "5000"}[rng.IntN(3)] // not 0, upon which a client of HTTP/2 resets what has a body

		return step{"Content-Length " + length, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", length) }}
	case 14, 15:
		return reading(rng, limit)
	case 16:
		return step{"panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }}
	case 17:
		return step{"Goexit", func(http.ResponseWriter, *http.Request) { runtime.Goexit() }}
	case 18:
		return step{"Hijack", hijack}
	default:
		return step{"header", func(w http.ResponseWriter, _ *http.Request) { w.Header().Add("X-H", "v") }}
	}
}

// copying returns a step that copies from a reader which may fail, and then answers with status.
func copying(rng *rand.Rand, status int, text string) step {
	fails, direct := rng.IntN(2) == 0, rng.IntN(2) == 0
	return step{fmt.Sprintf("Copy %d fails %v direct %v else %d", len(text), fails, direct, status), func(w http.ResponseWriter, _ *http.Request) {
		var src io.Reader = struct{ io.Reader }{strings.NewReader(text)}
		if fails {
			src = io.MultiReader(src, iotest.ErrReader(errBroken))
		}
		var n int64
		var err error
		if rf, ok := w.(io.ReaderFrom); ok && direct {
			n, err = rf.ReadFrom(src)
		} else {
			n, err = io.Copy(w, src)
		}
		if err != nil || n == 0 {
			w.WriteHeader(status)
		}
	}}
}

// reading returns a step that reads the body, or a part of it, and answers 413 if it is too large.
func reading(rng *rand.Rand, limit int64) step {
	part := rng.IntN(3) == 0
	return step{fmt.Sprint("read, part ", part), func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if limit > 0 {
			r.Body = http.MaxBytesReader(w, r.Body, limit)
			body = r.Body
		}
		if part {
			body = io.LimitReader(body, 3)
		}
		var tooLarge *http.MaxBytesError
		if _, err := io.Copy(io.Discard, body); errors.As(err, &tooLarge) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}}
}

// mayBeSent is in the header if a part of another answer may have been sent, to which nothing must be added.
const mayBeSent = "X-Sent"

func hijack(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // not over HTTP/2, nor in a TimeoutHandler
	}
	if w.Header()[mayBeSent] == nil {
		_, _ = io.WriteString(conn, "HTTP/1.1 218 Hijacked\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
	_ = conn.Close()
	runtime.Goexit()
}

// handler plays s, with gate between its TimeoutHandlers. Over HTTP/1, the writer of net/http is seen by nobody else.
func (s script) handler(gate func(http.Handler) http.Handler) http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i, st := range s.steps {
			s.stopped.Store(int64(i))
			if i > 0 && st.name == "Hijack" {
				w.Header().Set(mayBeSent, "")
			}
			st.do(w, r)
		}
		s.stopped.Store(-1)
	})
	if s.inside {
		h = http.TimeoutHandler(h, time.Hour, "")
	}
	h = gate(h)
	if s.outside {
		h = http.TimeoutHandler(h, time.Hour, "")
	}
	return h
}

// seen is what a client saw of an answer.
type seen struct {
	err      bool
	informed []int
	status   int
	header   http.Header
	close    bool
	body     string
	broken   bool
	trailer  http.Header
}

// ask sends the request of s and returns what comes back.
func (s script) ask(t *testing.T, url string, rt http.RoundTripper) (got seen) {
	t.Helper()
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
		got.informed = append(got.informed, code)
		return nil
	}}
	ctx, cancel := context.WithTimeout(httptrace.WithClientTrace(t.Context(), trace), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, s.method, url, nil)
	require.NoError(t, err)
	if s.body != "" {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(s.body)), int64(len(s.body))
	}
	res, err := rt.RoundTrip(r)
	if err != nil {
		require.NoError(t, ctx.Err(), "%s: %v", url, s)
		got.err = true
		return got
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, ctx.Err(), "%s: %v", url, s)
	got.status, got.header, got.close, got.body, got.broken, got.trailer = res.StatusCode, res.Header, res.Close, string(body), err != nil, res.Trailer
	got.header.Del("Date")
	return got
}

// booked returns the outcome that belongs to what a client saw of s, whose handler stopped at that step, or -1.
func (s script) booked(got seen, stopped int64) (want spillway.Outcome, ok bool) {
	switch {
	case stopped >= 0 && s.steps[stopped].name == "Hijack":
		return spillway.Ignored, true
	case stopped >= 0: // perhaps after the client had all that was announced
		return spillway.Failure, true
	default:
		return httpgate.DefaultOutcome(context.Background(), got.status), !got.err
	}
}

// A played server plays the scripts that its requests name, with and without a gate.
type played struct {
	mu      sync.Mutex
	scripts map[string]http.Handler
	running int // handlers
	left    *sync.Cond
}

func (p *played) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.running++
	h := p.scripts[r.URL.Path]
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running--
		p.left.Broadcast()
	}()
	h.ServeHTTP(w, r)
}

// wait waits until no handler runs.
func (p *played) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.running > 0 {
		p.left.Wait()
	}
}

// play starts a server and returns a function that plays a handler to one request and returns what the client saw.
func play(t *testing.T, http2 bool) func(s script, h http.Handler) seen {
	t.Helper()
	p := &played{scripts: map[string]http.Handler{}}
	p.left = sync.NewCond(&p.mu)
	srv := httptest.NewUnstartedServer(p)
	srv.Config.ErrorLog = discardLog
	srv.EnableHTTP2 = http2
	srv.StartTLS()
	t.Cleanup(srv.Close)
	rt := srv.Client().Transport.(*http.Transport)
	rt.MaxIdleConnsPerHost = 1
	if !http2 {
		rt.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	n := 0
	return func(s script, h http.Handler) seen {
		n++
		path := fmt.Sprint("/", n)
		p.mu.Lock()
		clear(p.scripts)
		p.scripts[path] = h
		p.mu.Unlock()
		got := s.ask(t, srv.URL+path, rt)
		if got.err { // perhaps of the connection that an earlier script left
			rt.CloseIdleConnections()
			got = s.ask(t, srv.URL+path, rt)
		}
		p.wait()
		return got
	}
}

// A random handler answers the same with and without a gate, and what the gate books is what the client saw.
//
//	go test ./middleware/httpgate -run TestBookedIsWhatTheClientSaw -differential 5000
func TestBookedIsWhatTheClientSaw(t *testing.T) {
	for _, proto := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2=", proto), func(t *testing.T) {
			playBare, playGated := play(t, proto), play(t, proto)
			for i := range *differentialScripts {
				seed := *differentialSeed + uint64(i)
				s := randomScript(rand.New(rand.NewPCG(seed, 7)))
				p := &gatetest.Recorder{}
				m, err := httpgate.New(spillway.New(p), nil)
				require.NoError(t, err)
				bare := playBare(s, s.handler(func(h http.Handler) http.Handler { return h }))
				gated := playGated(s, s.handler(m.Handler))
				if !s.resets() {
					require.Equal(t, s.comparable(bare), s.comparable(gated), "seed %d over HTTP/2: %v: %v", seed, proto, s)
				}
				require.Zero(t, m.Stats().LongLived, "seed %d: %v", seed, s)
				require.Zero(t, p.InFlight(), "seed %d: %v", seed, s)
				booked := p.Outcomes()[len(p.Outcomes())-1]
				want, ok := s.booked(gated, s.stopped.Load())
				if proto && (s.method == http.MethodHead || gated.broken) && booked == spillway.Ignored {
					continue // net/http ends the context as soon as it has sent the header of a HEAD, or when the client resets
				}
				if ok {
					require.Equal(t, want, booked, "seed %d over HTTP/2: %v: %v", seed, proto, s)
				}
			}
		})
	}
}

// resets reports whether the server closed the connection with a part of the body unread. The system then sends a reset,
// and whether the client still reads the answer is chance.
func (s script) resets() bool {
	return len(s.body) > 1000 && s.stopped.Load() >= 0
}

// comparable returns got without what a gate changes on purpose: the connection ends with a 413, and not with another
// answer to a request that was too large, of which only the writer of net/http hears.
func (s script) comparable(got seen) seen {
	if s.limit > 0 && int64(len(s.body)) > s.limit || got.status == http.StatusRequestEntityTooLarge {
		got.close = false
		got.header.Del("Connection")
	}
	return got
}
