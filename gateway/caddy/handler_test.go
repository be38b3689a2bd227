package caddy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	caddyserver "github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/gateway/caddy"
)

// load runs Caddy in this process with a site on address. Reloads use the same call.
func load(t *testing.T, address, site string) error {
	t.Helper()
	file := fmt.Sprintf("{\n admin off\n auto_https off\n grace_period 1s\n}\nhttp://%s {\n%s\n}\n", address, site)
	document, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(file), nil)
	if err != nil {
		return err
	}
	return caddyserver.Load(document, true)
}

// serve runs Caddy with a site, and returns its URL.
func serve(t *testing.T, site string) (url string, reload func(site string) error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	require.NoError(t, load(t, address, site))
	t.Cleanup(func() { require.NoError(t, caddyserver.Stop()) })
	return "http://" + address, func(site string) error { return load(t, address, site) }
}

func get(t *testing.T, url string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res
}

// backend answers through a function, and counts.
func backend(t *testing.T, answer http.HandlerFunc) (address string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), calls
}

func TestRatePerKeySurvivesAReload(t *testing.T) {
	to, calls := backend(t, func(http.ResponseWriter, *http.Request) {})
	site := `spillway {
		name api
		rate second 2/h {
			key {header.X-Tenant}
		}
		rate all 10/h
		rate_limit_headers
	}
	reverse_proxy ` + to
	url, reload := serve(t, site)

	res := get(t, url, "X-Tenant", "a")
	require.Equal(t, 200, res.StatusCode)
	require.Contains(t, res.Header.Get("Ratelimit"), `"second";r=1`)
	require.Contains(t, res.Header.Get("Ratelimit"), `"all";r=9`)
	require.Equal(t, 200, get(t, url, "X-Tenant", "a").StatusCode)
	res = get(t, url, "X-Tenant", "a")
	require.Equal(t, 429, res.StatusCode)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
	require.Equal(t, 200, get(t, url, "X-Tenant", "b").StatusCode, "another key has its own limit")
	require.EqualValues(t, 3, calls.Load(), "a refused request costs the backend nothing")

	require.NoError(t, reload(site+"\nheader X-New yes"))
	res = get(t, url, "X-Tenant", "a")
	require.Equal(t, "yes", res.Header.Get("X-New"))
	require.Equal(t, 429, res.StatusCode, "the same settings: used tokens stay used")
	require.Equal(t, 200, get(t, url, "X-Tenant", "b").StatusCode)

	require.NoError(t, reload(strings.Replace(site, "2/h", "3/h", 1)))
	require.Equal(t, 200, get(t, url, "X-Tenant", "a").StatusCode, "other settings start afresh")

	ctx := caddyserver.ActiveContext()
	families, err := ctx.GetMetricsRegistry().Gather()
	require.NoError(t, err)
	var found bool
	for _, f := range families {
		found = found || f.GetName() == "spillway_gate_requests_total"
	}
	require.True(t, found, "Caddy exports the metrics of a named handler")
}

// Errors of later handlers are answered by Caddy, after the gate. The breaker must see them.
func TestBreakerSeesErrorsOfTheBackend(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone := l.Addr().String()
	require.NoError(t, l.Close())
	url, _ := serve(t, `spillway {
		breaker {
			consecutive 3
			open_for 1m
		}
	}
	reverse_proxy `+gone)
	for range 3 {
		require.Equal(t, 502, get(t, url).StatusCode)
	}
	res := get(t, url)
	require.Equal(t, 503, res.StatusCode)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
}

// A real load over loopback: 40 clients at a backend behind a limit of 4 requests in flight.
func TestLoad(t *testing.T) {
	var running, most atomic.Int64
	to, calls := backend(t, func(http.ResponseWriter, *http.Request) {
		n := running.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(2 * time.Millisecond) // the work of the backend
		running.Add(-1)
	})
	site := "spillway {\n concurrency places 4\n}\nreverse_proxy " + to
	url, reload := serve(t, site)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 40}}
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	var ok, refused, other atomic.Int64
	var clients sync.WaitGroup
	for range 40 {
		clients.Go(func() {
			for ctx.Err() == nil {
				r, _ := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, url, nil)
				res, err := client.Do(r)
				if err != nil {
					other.Add(1)
					continue
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				switch {
				case res.StatusCode == http.StatusOK:
					ok.Add(1)
				case res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != "":
					refused.Add(1)
				default:
					other.Add(1)
				}
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // some load before the reload
	require.NoError(t, reload(site+"\nheader X-New yes"))
	clients.Wait()
	t.Logf("%d answered, %d refused, %d other, at most %d at once", ok.Load(), refused.Load(), other.Load(), most.Load())
	require.Positive(t, ok.Load())
	require.Greater(t, refused.Load(), ok.Load()/10, "40 clients for 4 places")
	require.LessOrEqual(t, other.Load(), int64(40), "a reload breaks off at most the connections of the old server")
	require.LessOrEqual(t, most.Load(), int64(8), "4 of each configuration")
	require.GreaterOrEqual(t, calls.Load(), ok.Load())
	client.CloseIdleConnections()
	require.NoError(t, caddyserver.Stop())
	require.Eventually(t, func() bool { return !strings.Contains(stacks(), "spillway/gateway/caddy.(*Handler)") }, 5*time.Second, 20*time.Millisecond,
		"a request is still in the handler")
	require.NotContains(t, stacks(), "created by github.com/spillway-go/spillway/", "the handler owns no goroutine")
}

// stacks returns the stacks of all goroutines but this one and the main one.
func stacks() string {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	_, others, _ := strings.Cut(string(all), "\n\n")
	return others
}

func TestDryRunRefusesNothing(t *testing.T) {
	to, _ := backend(t, func(http.ResponseWriter, *http.Request) {})
	url, _ := serve(t, "spillway {\n rate r 1/h\n dry_run\n}\nreverse_proxy "+to)
	for range 3 {
		require.Equal(t, 200, get(t, url).StatusCode)
	}
}

func TestPriorityComesFromAPlaceholder(t *testing.T) {
	to, _ := backend(t, func(http.ResponseWriter, *http.Request) {})
	url, _ := serve(t, `vars /export/* importance sheddable
	vars /pay/* importance critical+1
	vars /odd/* importance urgent
	spillway {
		name ranked
		priority {vars.importance}
	}
	reverse_proxy `+to)
	for path, n := range map[string]int{"/export/a": 1, "/pay/a": 2, "/odd/a": 3, "/": 4} {
		for range n {
			require.Equal(t, 200, get(t, url+path).StatusCode)
		}
	}
	ctx := caddyserver.ActiveContext()
	families, err := ctx.GetMetricsRegistry().Gather()
	require.NoError(t, err)
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "spillway_shedder_priority_admissions_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "priority" {
					counts[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	require.Equal(t, map[string]float64{"sheddable": 1, "normal": 7, "critical": 2}, counts)
}

// A WebSocket is admitted like any other request. Then it leaves the gate, so open ones do not use up a limit of requests in flight.
func TestWebSocketPasses(t *testing.T) {
	to, _ := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_, _ = io.Copy(conn, rw) // an echo
	})
	url, _ := serve(t, "spillway {\n concurrency all 1\n}\nreverse_proxy "+to)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+conn.RemoteAddr().String()+"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	require.Equal(t, 101, res.StatusCode)
	for _, frame := range []string{"first", "again"} {
		_, err = io.WriteString(conn, frame)
		require.NoError(t, err)
		got := make([]byte, len(frame))
		_, err = io.ReadFull(r, got)
		require.NoError(t, err)
		require.Equal(t, frame, string(got))
		require.Equal(t, 200, get(t, url).StatusCode, "the place is free again")
	}
}

func TestErrorsNameTheOption(t *testing.T) {
	for site, want := range map[string]string{
		"spillway 5":                                                            "wrong argument count",
		"spillway {\n limit a 5/s\n}":                                           `there is no option "limit"`,
		"spillway {\n rate a 5\n}":                                              "rate",
		"spillway {\n rate a 5/s {\n burst none\n}\n}":                          `burst: must be a whole number of at least 1, got "none"`,
		"spillway {\n rate a 5/s {\n max_keys 5\n}\n}":                          "max_keys: needs a key, got 5",
		"spillway {\n rate a 5/s\n concurrency a 5\n}":                          `two limits have the name "a"`,
		"spillway {\n shedder {\n cpu cloud\n}\n}":                              `cpu: must be process, machine or off, got "cloud"`,
		"spillway {\n shedder {\n max_shed 2\n}\n}":                             `max_shed: must be a fraction above 0, up to 1, got "2"`,
		"spillway {\n shedder {\n slo 5\n}\n}":                                  `slo: must be a positive duration such as 250ms, got "5"`,
		"spillway {\n dry_run\n dry_run\n}":                                     "dry_run: is set twice",
		"spillway {\n breaker {\n consecutive 0\n}\n}":                          `consecutive: must be a whole number of at least 1, got "0"`,
		"spillway {\n rate_limit_headers\n}":                                    "Limits: must be 1 to 8, got 0",
		"spillway {\n name a\n}\nroute {\n spillway {\n name a\n dry_run\n}\n}": `name: "a" has other settings elsewhere`,
	} {
		err := load(t, "127.0.0.1:0", site)
		require.ErrorContains(t, err, want, site)
	}
	require.NoError(t, caddyserver.Stop())
}

func TestModuleIsRegistered(t *testing.T) {
	m, err := caddyserver.GetModule("http.handlers.spillway")
	require.NoError(t, err)
	require.IsType(t, new(caddy.Handler), m.New())
}
