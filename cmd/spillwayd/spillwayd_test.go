package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
	"github.com/spillway-go/spillway/limiter"
)

// patience is how long a test waits for what happens at once on a free machine.
const patience = 20 * time.Second

// A process is a spillwayd under test.
type process struct {
	t           *testing.T
	s           *server
	url, admin  string
	stop        context.CancelFunc
	ended       chan error
	log         *lockedBuffer
	transport   *http.Transport
	client      *http.Client
	backendHits *atomic.Int64
}

// A lockedBuffer is a log that tests read while it grows.
type lockedBuffer struct {
	mu  chan struct{}
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu <- struct{}{}
	defer func() { <-b.mu }()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu <- struct{}{}
	defer func() { <-b.mu }()
	return b.buf.String()
}

// start runs spillwayd in front of a backend. Change may change its Config.
func start(t *testing.T, backend http.HandlerFunc, change func(*config.Config)) *process {
	t.Helper()
	hits := new(atomic.Int64)
	b := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		backend(w, r)
	}))
	b.Config.Protocols = new(http.Protocols)
	b.Config.Protocols.SetHTTP1(true)
	b.Config.Protocols.SetUnencryptedHTTP2(true)
	b.Start()
	t.Cleanup(b.Close)
	c, err := config.Default(b.URL)
	require.NoError(t, err)
	c.Listen[0].Address, c.Admin.Address = "127.0.0.1:0", "127.0.0.1:0"
	if change != nil {
		change(c)
	}
	p := startConfig(t, c, "")
	p.backendHits = hits
	return p
}

func startConfig(t *testing.T, c *config.Config, file string) *process {
	t.Helper()
	t.Setenv("STATE_DIRECTORY", t.TempDir()) // tests share no state
	log := &lockedBuffer{mu: make(chan struct{}, 1)}
	s, err := newServer(c, file, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	p := &process{
		t: t, s: s, stop: stop, ended: make(chan error, 1), log: log, transport: new(http.Transport),
		url: "http://" + s.accepted[0].Addr().String(), admin: "http://" + s.admin.listener.Addr().String(),
	}
	p.client = &http.Client{Transport: p.transport, Timeout: patience}
	go func() { p.ended <- s.run(ctx) }()
	t.Cleanup(func() {
		p.transport.CloseIdleConnections()
		stop()
		select {
		case err := <-p.ended:
			require.NoError(t, err)
		case <-time.After(patience):
			require.Fail(t, "spillwayd did not end")
		}
	})
	return p
}

// get returns the answer and its body.
func (p *process) get(url string, header ...string) (*http.Response, string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, url, nil)
	require.NoError(p.t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return p.do(r)
}

func (p *process) do(r *http.Request) (*http.Response, string) {
	p.t.Helper()
	res, err := p.client.Do(r)
	require.NoError(p.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(p.t, err)
	return res, string(body)
}

func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Path", r.URL.RequestURI())
	_ = r.Header.Write(w)
	_, _ = fmt.Fprintf(w, "Host: %s\r\n", r.Host)
}

func TestForwardsRequests(t *testing.T) {
	p := start(t, echo, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/a//b/../c?x=1;y", nil)
	require.NoError(t, err)
	r.Host = "shop.test"
	for name, value := range map[string]string{
		"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "https", "Forwarded": "for=6.6.6.6", "Spillway-Priority": "critical",
		"Connection": "X-Hop", "X-Hop": "1", "X-End": "2",
	} {
		r.Header.Set(name, value)
	}
	res, body := p.do(r)
	require.Equal(t, 200, res.StatusCode)
	require.Equal(t, "/a//b/../c?x=1;y", res.Header.Get("X-Path"), "the path is not cleaned")
	require.Contains(t, body, "Host: shop.test\r\n")
	require.Contains(t, body, "X-End: 2\r\n")
	require.Contains(t, body, "X-Forwarded-For: 127.0.0.1\r\n")
	require.Contains(t, body, "X-Forwarded-Proto: http\r\n")
	require.Contains(t, body, "X-Forwarded-Host: shop.test\r\n")
	for _, gone := range []string{"6.6.6.6", "X-Hop", "critical"} {
		require.NotContains(t, body, gone)
	}
}

func TestTrustedProxiesAreBelieved(t *testing.T) {
	p := start(t, echo, func(c *config.Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	_, body := p.get(p.url, "X-Forwarded-For", "192.0.2.7", "X-Forwarded-Proto", "https", "Spillway-Priority", "critical")
	require.Contains(t, body, "X-Forwarded-For: 192.0.2.7, 127.0.0.1\r\n")
	require.Contains(t, body, "X-Forwarded-Proto: https\r\n")
	require.Contains(t, body, "Spillway-Priority: critical\r\n")
}

func TestRefusalsNeverReachTheBackend(t *testing.T) {
	p := start(t, echo, func(c *config.Config) {
		c.Client.Key = "ip"
		c.Routes = []config.Route{{
			Match: "GET /items/{id}", Name: "items", Rate: &config.Rate{Rate: limiter.Per(2, time.Hour), Per: config.PerClient},
		}}
		c.Log.Refusals = 1
	})
	for i := range 10 {
		res, _ := p.get(fmt.Sprintf("%s//items/%d", p.url, i)) // the mux would clean the path
		want := http.StatusOK
		if i >= 2 {
			want = http.StatusTooManyRequests
			require.NotEmpty(t, res.Header.Get("Retry-After"))
		}
		require.Equal(t, want, res.StatusCode)
	}
	require.Equal(t, int64(2), p.backendHits.Load())
	res, _ := p.get(p.url + "/other")
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Contains(t, p.log.String(), "policy=items.rate")
	require.Less(t, strings.Count(p.log.String(), "msg=refused"), 8, "not each refusal has a line")
	_, metrics := p.get(p.admin + "/metrics")
	require.Contains(t, metrics, `spillway_gate_refusals_total{name="items",policy="items.rate",reason="rate exceeded"} 8`)
}

func TestTheBackendsOwnRefusalsAreNoFailures(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
	}, nil)
	res, _ := p.get(p.url)
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.Equal(t, "7", res.Header.Get("Retry-After"))
	_, metrics := p.get(p.admin + "/metrics")
	require.Contains(t, metrics, `spillway_gate_outcomes_total{name="default",outcome="dropped"} 1`)
	require.Contains(t, metrics, `result="refused"} 1`)
}

func TestLoadReportsReachTheShedder(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Endpoint-Load-Metrics-Format") == "text" {
			w.Header().Set("Endpoint-Load-Metrics", "TEXT cpu_utilization=0.375")
		}
	}, nil)
	require.Eventually(t, func() bool { // the sensor reads every 250 ms
		res, _ := p.get(p.url)
		_, metrics := p.get(p.admin + "/metrics")
		return res.Header.Get("Endpoint-Load-Metrics") == "" && strings.Contains(metrics, `spillway_shedder_cpu_ratio{name="default",policy="shedder"} 0.375`)
	}, patience, 20*time.Millisecond)
}

func TestUpgradesPass(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(c, rw)
	}, func(c *config.Config) { c.Log.Access = "on" })
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	_, err = io.WriteString(c, "hello\n")
	require.NoError(t, err)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
	require.Equal(t, int64(1), p.s.proxy.LongLived(), "an open connection does not count as a request in flight")
	_, metrics := p.get(p.admin + "/metrics")
	require.Contains(t, metrics, `spillway_gate_in_flight{name="default"} 0`)
}

func TestEventsAreFlushed(t *testing.T) {
	held := make(chan struct{})
	p := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-held
	}, nil)
	defer close(held)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url, nil)
	require.NoError(t, err)
	r.Header.Set("Accept", "text/event-stream")
	res, err := p.client.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "data: 1\n", line)
}

func TestGRPCPassesOverH2C(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set("X-Proto", r.Proto)
	}, func(c *config.Config) { c.Backend.URLs[0] = strings.Replace(c.Backend.URLs[0], "http:", "h2c:", 1) })
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	p.client.Transport = &http.Transport{Protocols: &protocols}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/shop.Items/Get", strings.NewReader("message"))
	require.NoError(t, err)
	r.Header.Set("TE", "trailers")
	r.Header.Set("Content-Type", "application/grpc")
	res, body := p.do(r)
	require.Equal(t, 2, res.ProtoMajor)
	require.Equal(t, "message", body)
	require.Equal(t, "0", res.Trailer.Get("Grpc-Status"))
}

func TestEveryRequestIsAnsweredBeforeTheEnd(t *testing.T) {
	entered, held := make(chan struct{}), make(chan struct{})
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-held
		}
		_, _ = io.WriteString(w, "done")
	}, func(c *config.Config) { c.Drain.Delay = 2 * time.Second })
	answered := make(chan string, 1)
	go func() {
		res, err := p.client.Get(p.url + "/slow")
		if err != nil {
			answered <- err.Error()
			return
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		answered <- string(body)
	}()
	<-entered
	res, _ := p.get(p.admin + "/readyz")
	require.Equal(t, http.StatusOK, res.StatusCode)
	p.stop()
	require.Eventually(t, func() bool {
		res, err := http.Get(p.admin + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusServiceUnavailable
	}, patience, time.Millisecond)
	res, body := p.get(p.url + "/quick")
	require.Equal(t, "done", body, "during the delay, new requests are answered")
	require.True(t, res.Close, "and clients are asked to go elsewhere")
	select {
	case err := <-p.ended:
		require.Fail(t, "the process ended before the answer", "%v", err)
	case <-time.After(2500 * time.Millisecond): // longer than the delay: the process waits for the slow request
	}
	close(held)
	require.Equal(t, "done", <-answered)
	err := <-p.ended
	require.NoError(t, err)
	p.ended <- err // for the cleanup
}

func TestADrainHasAnEnd(t *testing.T) {
	entered := make(chan struct{})
	p := start(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}, func(c *config.Config) {
		c.Drain.Timeout, c.Backend.Abandoned = 10*time.Millisecond, 20*time.Millisecond
	})
	go func() {
		if res, err := p.client.Get(p.url); err == nil {
			res.Body.Close()
		}
	}()
	<-entered
	p.stop()
	require.ErrorContains(t, <-p.ended, "drain.timeout (10ms)")
	p.ended <- nil // for the cleanup
}

func TestAdminPages(t *testing.T) {
	p := start(t, echo, nil)
	p.get(p.url)
	for path, want := range map[string]string{
		"/healthz": "ok\n", "/readyz": "ok\n", "/metrics": `spillwayd_connections_total{name="127.0.0.1:0",result="accepted"} 1`,
		"/debug/spillway/": "<title>", "/debug/spillway/rules": `"in_force"`,
	} {
		res, body := p.get(p.admin + path)
		require.Equal(t, http.StatusOK, res.StatusCode, path)
		require.Contains(t, body, want, path)
	}
	res, _ := p.get(p.url + "/healthz")
	require.NotEmpty(t, res.Header.Get("X-Path"), "clients reach the backend under the same paths")
}

func TestBodyLimits(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, func(c *config.Config) {
		c.MaxBody = 10
		c.Routes = []config.Route{{Match: "/big", Name: "big", MaxBody: 1000}}
	})
	for _, c := range []struct {
		path   string
		size   int
		hidden bool
		want   int
	}{
		{"/", 10, false, 200}, {"/", 11, false, 413}, {"/", 10, true, 200}, {"/", 11, true, 413}, {"/big", 1000, false, 200}, {"/big", 1001, true, 413},
	} {
		var body io.Reader = strings.NewReader(strings.Repeat("x", c.size))
		if c.hidden {
			body = io.MultiReader(body) // so that it is chunked
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+c.path, body)
		require.NoError(t, err)
		res, _ := p.do(r)
		require.Equal(t, c.want, res.StatusCode, "%+v", c)
	}
}

func TestDeadlines(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, r.Header.Get("Connect-Timeout-Ms"))
	}, func(c *config.Config) {
		c.Backend.TimeoutHeader = "Connect-Timeout-Ms"
		c.Routes = []config.Route{{Match: "/", Name: "all", Deadline: 5 * time.Second}}
	})
	_, body := p.get(p.url)
	require.Len(t, body, 4, "the backend knows how much time is left, in ms: %s", body)
	res, _ := p.get(p.url+"/slow", "Connect-Timeout-Ms", "30")
	require.Equal(t, http.StatusGatewayTimeout, res.StatusCode)
}

func TestPrioritiesOfRoutes(t *testing.T) {
	critical := spillway.Critical
	p := start(t, echo, func(c *config.Config) { c.Routes = []config.Route{{Match: "/pay", Name: "pay", Priority: &critical}} })
	p.get(p.url + "/pay")
	p.get(p.url + "/other")
	require.Eventually(t, func() bool { // the shedder counts by its ticks
		_, metrics := p.get(p.admin + "/metrics")
		return strings.Contains(metrics, `priority="critical"`) &&
			strings.Contains(metrics, `spillway_gate_requests_total{name="pay",result="admitted"} 1`)
	}, patience, 10*time.Millisecond)
}

func TestDryRunRefusesNothing(t *testing.T) {
	p := start(t, echo, func(c *config.Config) {
		c.DryRun = true
		c.Routes = []config.Route{{Match: "/", Name: "all", Rate: &config.Rate{Rate: limiter.Per(1, time.Hour), Per: config.PerAll}}}
	})
	for range 5 {
		res, _ := p.get(p.url)
		require.Equal(t, http.StatusOK, res.StatusCode)
	}
	_, metrics := p.get(p.admin + "/metrics")
	require.Regexp(t, `spillway_shadow_\w+\{[^}]*reason="rate exceeded"[^}]*\} 4`, metrics)
}

func TestNumbersChangeWhileItRuns(t *testing.T) {
	for _, per := range []string{config.PerAll, config.PerBackend} {
		t.Run(per, func(t *testing.T) { numbersChange(t, per) })
	}
}

func numbersChange(t *testing.T, per string) {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(echo))
	defer backend.Close()
	file := filepath.Join(t.TempDir(), "spillwayd.yaml")
	write := func(limit string) {
		text := fmt.Sprintf("listen: [{address: '127.0.0.1:0'}]\nadmin: {address: '127.0.0.1:0'}\nbackend: {urls: [%s]}\n"+
			"routes: [{match: /, name: all, rate: {rate: %s, per: %s}}]\n", backend.URL, limit, per)
		require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write("1/h")
	c, err := config.Load(file)
	require.NoError(t, err)
	p := startConfig(t, c, file)
	p.get(p.url)
	res, _ := p.get(p.url)
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	write("fast")
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "document refused") }, patience, 10*time.Millisecond)
	res, _ = p.get(p.url)
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode, "a bad file changes nothing")
	write("1000/s")
	require.Eventually(t, func() bool {
		res, _ := p.get(p.url)
		return res.StatusCode == http.StatusOK
	}, patience, 10*time.Millisecond)
}

func TestRequestsMayWaitForTheirTurn(t *testing.T) {
	for _, per := range []string{config.PerAll, config.PerClient} {
		p := start(t, echo, func(c *config.Config) {
			c.Client.Key = "ip"
			c.Routes = []config.Route{{
				Match: "/", Name: "all", Rate: &config.Rate{Rate: limiter.Per(20, time.Second), MaxWait: patience, Per: per},
			}}
		})
		began := time.Now()
		for range 5 {
			res, _ := p.get(p.url)
			require.Equal(t, http.StatusOK, res.StatusCode)
		}
		require.GreaterOrEqual(t, time.Since(began), 195*time.Millisecond, "the first passes at once, and four wait for 50 ms each")
	}
}

func TestTLSWithHTTP2(t *testing.T) {
	own := httptest.NewUnstartedServer(nil)
	own.StartTLS() // for its certificate
	defer own.Close()
	dir := t.TempDir()
	cert, key := writePair(t, dir, own)
	p := start(t, echo, func(c *config.Config) { c.Listen[0].TLS = &config.TLS{Cert: cert, Key: key} })
	p.client.Transport = &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}
	res, body := p.get(strings.Replace(p.url, "http:", "https:", 1))
	require.Equal(t, 2, res.ProtoMajor)
	require.Contains(t, body, "X-Forwarded-Proto: https\r\n")
}

func TestCommandLine(t *testing.T) {
	good, bad := filepath.Join(t.TempDir(), "good.yaml"), filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(good, []byte("backend: {urls: [http://127.0.0.1:9000]}"), 0o600))
	require.NoError(t, os.WriteFile(bad, []byte("backend: {urls: [http://127.0.0.1:9000], ca: /nowhere.pem}"), 0o600))
	for args, want := range map[string]string{
		"-check " + good:        "is valid",
		"-check " + bad:         "backend.ca: open /nowhere.pem",
		"-check /nowhere":       "no such file",
		"":                      "there must be one of -to, -config and -check",
		"-to http://a -check b": "there must be one of",
		"-to a":                 `backend.urls[0]: must be an URL`,
		"-to http://a b":        "no further arguments, got 1",
		"-nothing":              "flag provided but not defined",
		"-to http://127.0.0.1:9 -listen 256.0.0.1:0": "listen[0]: ",
	} {
		var out bytes.Buffer
		code := run(strings.Fields(args), io.Discard, &out)
		require.Equal(t, strings.HasPrefix(want, "is valid"), code == exitOK, "%s: %s", args, out.String())
		require.Contains(t, out.String(), want, args)
	}
	var out bytes.Buffer
	require.Equal(t, exitOK, run([]string{"-h"}, io.Discard, &out))
	require.True(t, strings.HasPrefix(out.String(), "spillwayd is a reverse proxy"), "%s", out.String())
	require.Contains(t, out.String(), "-licenses")
}

// The licenses of others go to the standard output, and nothing goes to the log.
func TestLicenses(t *testing.T) {
	var answer, out bytes.Buffer
	require.Equal(t, exitOK, run([]string{"-licenses"}, &answer, &out))
	require.Empty(t, out.String())
	for _, of := range []string{"The standard library of Go", "uplot", "github.com/prometheus/client_golang v1.", "Permission is hereby granted"} {
		require.Contains(t, answer.String(), of)
	}
}

// A rate for each backend follows the number of those that are up.
func TestRatesFollowTheBackends(t *testing.T) {
	for _, sick := range []bool{false, true} {
		var unwell atomic.Bool
		unwell.Store(sick)
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if unwell.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		defer other.Close()
		p := start(t, echo, func(c *config.Config) {
			c.Backend.URLs = append(c.Backend.URLs, other.URL)
			c.Backend.Health = &config.Health{Path: "/", Every: 10 * time.Millisecond, Timeout: patience, Failures: 1, Successes: 1}
			c.Routes = []config.Route{{
				Match: "/", Name: "all", Rate: &config.Rate{Rate: limiter.Per(10, time.Hour), Burst: 10, Per: config.PerBackend},
			}}
		})
		admitted := func() (n int) {
			for range 30 {
				if res, _ := p.get(p.url); res.StatusCode != http.StatusTooManyRequests {
					n++
				}
			}
			return n
		}
		if !sick {
			require.Equal(t, 20, admitted())
			continue
		}
		p.eventually(fmt.Sprintf(`spillwayd_backend_up{backend="%s",name="backends"} 0`, other.URL))
		require.Equal(t, 10, admitted())
	}
}
