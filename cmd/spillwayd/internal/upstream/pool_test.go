package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
)

const patience = 10 * time.Second

// A server is a backend that counts.
type server struct {
	*httptest.Server
	asked  atomic.Int64
	answer atomic.Pointer[http.HandlerFunc]
}

func (s *server) does(h http.HandlerFunc) { s.answer.Store(&h) }

func newBackend(t *testing.T, h http.HandlerFunc) *server {
	t.Helper()
	s := new(server)
	s.does(h)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.UserAgent(), "spillwayd-health") {
			s.asked.Add(1)
		}
		(*s.answer.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func newPool(t *testing.T, change func(*config.Backend), urls ...string) *Pool {
	t.Helper()
	c, err := config.Default(urls...)
	require.NoError(t, err)
	if change != nil {
		change(&c.Backend)
	}
	p, err := New(&c.Backend, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// get returns the status of an answer, or 0.
func get(t *testing.T, p *Pool) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://backend/", nil)
	require.NoError(t, err)
	res, err := p.RoundTrip(r)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	return res.StatusCode
}

func TestTheLeastLoadedBackendIsChosen(t *testing.T) {
	held := make(chan struct{})
	entered := make(chan struct{}, 100)
	slow := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-held
	})
	fast := newBackend(t, ok)
	p := newPool(t, nil, slow.URL, fast.URL)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for slow.asked.Load() == 0 { // chosen at random while both are idle
			r, _ := http.NewRequest(http.MethodGet, "http://backend/", nil)
			if res, err := p.RoundTrip(r); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}
	}()
	<-entered
	before := fast.asked.Load()
	for range 20 {
		require.Equal(t, 200, get(t, p))
	}
	require.Equal(t, int64(1), slow.asked.Load())
	require.Equal(t, before+20, fast.asked.Load())
	close(held)
	<-done
	for _, b := range p.backends {
		require.Zero(t, b.meter.inFlight.Load())
	}
}

func TestRefusalsEjectNobodyAndGetFewerRequests(t *testing.T) {
	full, room := newBackend(t, status(http.StatusServiceUnavailable)), newBackend(t, ok)
	p := newPool(t, nil, full.URL, room.URL)
	for range 100 {
		ask(t, p, 0)
	}
	require.Zero(t, p.backends[0].ejectedUntil.Load(), "a refusal is no failure")
	before := full.asked.Load()
	for range 1000 {
		require.NotZero(t, get(t, p))
	}
	require.Less(t, full.asked.Load()-before, int64(100), "one at a time: the other is idle each time, and refuses nothing")
}

// ask sends a request to one backend, whatever its load.
func ask(t *testing.T, p *Pool, i int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.backends[i].name, nil)
	require.NoError(t, err)
	res, err := p.backends[i].rt.RoundTrip(r)
	if err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

func TestFailingBackendsAreEjectedUpToTheCap(t *testing.T) {
	var urls []string
	for range 4 {
		urls = append(urls, newBackend(t, status(500)).URL)
	}
	p := newPool(t, func(b *config.Backend) { b.Eject.OpenFor = time.Hour }, urls...)
	ejected := 0
	for i, b := range p.backends {
		for range 20 {
			ask(t, p, i)
		}
		if b.ejectedUntil.Load() != 0 {
			ejected++
		}
	}
	require.Equal(t, 2, ejected, "half of four")
	require.True(t, p.Ready())
	require.Equal(t, 500, get(t, p))
}

func TestAnEjectedBackendComesBack(t *testing.T) {
	flaky, good := newBackend(t, status(500)), newBackend(t, ok)
	p := newPool(t, func(b *config.Backend) { b.Eject.OpenFor = 50 * time.Millisecond }, flaky.URL, good.URL)
	for range 20 {
		ask(t, p, 0)
	}
	require.NotZero(t, p.backends[0].ejectedUntil.Load())
	flaky.does(ok)
	require.Eventually(t, func() bool { // the open time and the probes take real time
		return get(t, p) != 0 && p.backends[0].ejectedUntil.Load() == 0
	}, patience, time.Millisecond)
}

func TestOneBackendIsNeverEjected(t *testing.T) {
	s := newBackend(t, status(500))
	p := newPool(t, nil, s.URL)
	for range 100 {
		require.Equal(t, 500, get(t, p))
	}
	require.Equal(t, int64(100), s.asked.Load())
}

func TestHealthChecks(t *testing.T) {
	sick, well := newBackend(t, status(500)), newBackend(t, ok)
	p := newPool(t, func(b *config.Backend) {
		b.Health = &config.Health{Path: "/healthz", Every: time.Millisecond, Timeout: patience, Failures: 2, Successes: 2}
	}, sick.URL, well.URL)
	require.Eventually(t, p.backends[0].down.Load, patience, time.Millisecond)
	require.False(t, p.allDown.Load())
	for range 20 {
		require.Equal(t, 200, get(t, p))
	}
	require.Zero(t, sick.asked.Load())
	well.does(status(500))
	require.Eventually(t, p.allDown.Load, patience, time.Millisecond, "if all are down, the checks do not count")
	require.False(t, p.Ready())
	require.Equal(t, 500, get(t, p))
	sick.does(ok)
	well.does(ok)
	require.Eventually(t, func() bool { return !p.backends[0].down.Load() && !p.backends[1].down.Load() }, patience, time.Millisecond)
	require.True(t, p.Ready())
}

func TestLoadReports(t *testing.T) {
	reports := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Endpoint-Load-Metrics", text) }
	}
	a, b := newBackend(t, reports("TEXT cpu_utilization=0.5, application_utilization=1.5")), newBackend(t, reports("TEXT cpu_utilization=0.7"))
	p := newPool(t, nil, a.URL, b.URL)
	_, err := p.CPU()
	require.ErrorIs(t, err, errNoReport)
	for i := range p.backends {
		p.backends[1-i].down.Store(true)
		r, err := http.NewRequest(http.MethodGet, "http://backend/", nil)
		require.NoError(t, err)
		res, err := p.RoundTrip(r)
		require.NoError(t, err)
		res.Body.Close()
		require.Empty(t, res.Header.Get("Endpoint-Load-Metrics"), "clients do not see it")
		p.backends[1-i].down.Store(false)
	}
	cpu, err := p.CPU()
	require.NoError(t, err)
	require.InDelta(t, 0.6, cpu, 1e-9)
	application, err := p.Application(time.Now())
	require.NoError(t, err)
	require.Equal(t, 1.5, application)
	application, err = p.Application(time.Now().Add(reportLife + time.Second))
	require.NoError(t, err)
	require.Zero(t, application, "old reports do not count")
}

func TestLoadReportsOfGRPC(t *testing.T) {
	const report = "CQAAAAAAANA/"
	s := newBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc+proto")
		w.Header().Set("Trailer", "Grpc-Status, Endpoint-Load-Metrics-Bin")
		_, _ = io.WriteString(w, "message")
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set("Endpoint-Load-Metrics-Bin", report)
	})
	p := newPool(t, nil, s.URL)
	r, err := http.NewRequest(http.MethodPost, "http://backend/", nil)
	require.NoError(t, err)
	res, err := p.RoundTrip(r)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "message", string(body))
	require.Equal(t, http.Header{"Grpc-Status": {"0"}}, res.Trailer)
	cpu, err := p.CPU()
	require.NoError(t, err)
	require.Equal(t, 0.25, cpu)
}

func TestRetriesGoToAnotherBackend(t *testing.T) {
	gone, good := newBackend(t, ok), newBackend(t, ok)
	gone.Close()
	p := newPool(t, func(b *config.Backend) {
		b.Retry = &config.Retry{Attempts: 5, Backoff: time.Millisecond, Tokens: 1000}
	}, gone.URL, good.URL)
	for range 50 {
		require.Equal(t, 200, get(t, p))
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	s := &http.Server{Handler: http.HandlerFunc(ok), ReadHeaderTimeout: patience}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	require.Equal(t, 200, get(t, newPool(t, nil, "unix:"+path)))
}

func TestH2C(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.Proto) }))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	p := newPool(t, nil, strings.Replace(s.URL, "http:", "h2c:", 1))
	r, err := http.NewRequest(http.MethodGet, "http://backend/", nil)
	require.NoError(t, err)
	res, err := p.RoundTrip(r)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "HTTP/2.0", string(body))
	_, err = New(&config.Backend{URLs: []string{"h2c://a:1", "http://b:1"}}, nil)
	require.ErrorContains(t, err, `backend.urls[1]: must be h2c like the other backends, got "http://b:1"`)
}

func TestNoBackendIsARefusal(t *testing.T) {
	p := newPool(t, nil, "http://127.0.0.1:1", "http://127.0.0.1:2")
	for _, b := range p.backends {
		b.ejectedUntil.Store(time.Now().Add(time.Hour).UnixNano())
	}
	r, err := http.NewRequest(http.MethodPost, "http://backend/", io.NopCloser(strings.NewReader("x")))
	require.NoError(t, err)
	_, err = p.RoundTrip(r)
	require.ErrorIs(t, err, spillway.ErrRejected)
	require.False(t, p.Ready())
}

func TestShareMoves(t *testing.T) {
	var s share
	for range 100 {
		s.add(1)
	}
	require.Greater(t, s.value(), 0.9)
	for range 1000 {
		s.add(0)
	}
	require.Zero(t, s.value())
}

// A backend that cannot be reached is in the log, but not once for each request.
func TestAnUnreachableBackendIsLoggedNowAndThen(t *testing.T) {
	var log bytes.Buffer
	b, now := &backend{name: "http://shop"}, time.Now()
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for i := range 1000 {
		b.complain(logger, now.Add(time.Duration(i)*complainEvery/500), errors.New("connection refused"))
	}
	require.Equal(t, 2, strings.Count(log.String(), "connection refused"))
	require.Contains(t, log.String(), "http://shop")
}
