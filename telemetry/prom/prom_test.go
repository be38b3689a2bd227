package prom_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shadow"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
	"github.com/spillway-go/spillway/telemetry/prom"
)

func Example() {
	gate := spillway.New(spillway.Must(limiter.New(limiter.Concurrency{Name: "pool", Limit: 1})))
	registry := prometheus.NewRegistry()
	registry.MustRegister(prom.New(map[string]stats.Source{"api": gate}))

	for range 3 {
		_, _ = gate.Enter(context.Background(), spillway.Request{})
	}
	for line := range strings.SplitSeq(scrape(registry), "\n") {
		if strings.HasPrefix(line, "spillway_gate_refusals") {
			fmt.Println(line)
		}
	}
	// Output:
	// spillway_gate_refusals_total{name="api",policy="pool",reason="limit reached"} 2
}

// scrape returns what a server scrapes.
func scrape(registry *prometheus.Registry) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// everything returns a source of each kind, all of which have counted something.
func everything(t testing.TB) map[string]stats.Source {
	keyed, err := limiter.NewKeyed(limiter.Bucket{Name: "per-user", Rate: limiter.Per(1, time.Hour)}, nil)
	require.NoError(t, err)
	queue := spillway.Must(limiter.New(limiter.Queue{Name: "jobs", Limit: 1, MaxQueue: 1, MaxWait: time.Millisecond}))
	registry, err := limiter.NewRegistry(&limiter.RegistryOptions{New: func(string) (limiter.Member, error) { return queue, nil }})
	require.NoError(t, err)
	brk := spillway.Must(breaker.New(&breaker.Options{Name: "db", Consecutive: 1}))
	gate := spillway.New(
		shadow.New(spillway.Must(shedder.New(&shedder.Options{Name: "trial"}))), keyed, registry,
		spillway.Must(adaptive.New(nil)), spillway.Must(shedder.New(nil)), spillway.Must(breaker.NewThrottle(nil)), brk,
	)
	server, err := httpgate.New(gate, nil)
	require.NoError(t, err)
	budget := spillway.Must(httpgate.NewRetryBudget(nil))
	client, err := httpgate.NewTransport(spillway.New(brk), nil, &httpgate.TransportOptions{Budget: budget})
	require.NoError(t, err)
	for range 3 {
		p, err := gate.Enter(t.Context(), spillway.Request{Key: "a"})
		if err == nil {
			p.Done(spillway.Failure)
		}
	}
	require.True(t, queue.Allow())
	require.Error(t, queue.Wait(t.Context(), 1), "it waits for a millisecond")
	return map[string]stats.Source{"api": server, "db": client, "jobs": queue, "jobs again": queue}
}

func TestScrapeIsClean(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prom.New(everything(t)))
	text := scrape(registry)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	for _, want := range []string{
		`spillway_gate_requests_total{name="api",result="admitted"} 1`,
		`spillway_breaker_state{name="api",policy="db",state="open"} 1`,
		`spillway_breaker_openings_total{name="api",policy="db",reason="consecutive failures"} 1`,
		`spillway_shedder_in_flight{name="api",policy="trial",shadow="0"} 0`,
		`spillway_limiter_wait_seconds_count{name="api",policy="jobs",result="refused"} 1`,
		`spillway_http_client_retry_tokens{name="db"} 10`,
		"# TYPE spillway_demand_ratio gauge", "# TYPE spillway_limiter_wait_seconds histogram",
	} {
		if strings.Contains(want, "limiter_wait") && !strings.HasPrefix(want, "#") {
			want = strings.Replace(want, `"api"`, `"jobs"`, 1)
		}
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "Inf\n", "a limit that is none is left out")
	require.NotContains(t, text, `shedder_limit{`)
	require.Equal(t, 1, strings.Count(text, `spillway_breaker_state{name="api",policy="db",state="closed"}`)+
		strings.Count(text, `spillway_breaker_state{name="db",policy="db",state="closed"}`), "a shared policy appears once")
	require.Equal(t, text, scrape(registry), "and again")
	if out := os.Getenv("SPILLWAY_SCRAPE"); out != "" { // for promtool check metrics
		require.NoError(t, os.WriteFile(out, []byte(text), 0o644))
	}
}

// source is a user's own source.
type source []stats.Metric

func (s source) Metrics() iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		for _, m := range s {
			if !yield(m) {
				return
			}
		}
	}
}

func TestSourcesOfUsersDoNotBreakTheScrape(t *testing.T) {
	registry := prometheus.NewRegistry()
	secret := stats.Metric{Name: "my.key", Labels: []stats.Label{{Name: "key", Value: "alice"}}}
	odd := stats.Metric{Name: "my.bytes", Unit: "By", Labels: []stats.Label{{Name: "name", Value: "x"}, {Name: "a-b", Value: "\xff"}}, Value: 1}
	registry.MustRegister(prom.New(map[string]stats.Source{"a": source{odd, secret, odd}, "b\xff": source{odd}}))
	text := scrape(registry)
	require.Contains(t, text, `my_bytes{a_b="�",label_name="x",name="a"} 1`)
	require.Equal(t, 2, strings.Count(text, "\nmy_bytes{"), text)
	require.NotContains(t, text, "alice", "keys name clients")
}

func TestHistogram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := spillway.Must(limiter.New(limiter.Shaper{Name: "jobs", Rate: limiter.Per(1, time.Second), MaxWait: time.Hour}))
		for range 6 {
			require.NoError(t, queue.Wait(t.Context(), 1))
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(prom.New(map[string]stats.Source{"jobs": queue}))
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() != "spillway_limiter_wait_seconds" {
				continue
			}
			h := f.GetMetric()[0].GetHistogram()
			require.EqualValues(t, 5, h.GetSampleCount())
			require.InDelta(t, 5, h.GetSampleSum(), 0.1)
			require.EqualValues(t, 2, h.GetSchema())
			sum, native := int64(0), int64(0)
			for _, delta := range h.GetPositiveDelta() {
				sum += delta
				native += sum
			}
			require.EqualValues(t, 5, native)
			for _, b := range h.GetBucket() {
				switch bound := b.GetUpperBound(); {
				case bound < 0.9:
					require.Zero(t, b.GetCumulativeCount(), bound)
				case bound > 1.1:
					require.EqualValues(t, 5, b.GetCumulativeCount(), bound)
				}
			}
			require.Len(t, h.GetBucket(), 14)
			return
		}
		t.Error("no histogram")
	})
}

// fifty returns a process with 50 policies behind 25 gates.
func fifty(t testing.TB) map[string]stats.Source {
	sources := map[string]stats.Source{}
	for i := range 25 {
		name := fmt.Sprint("gate-", i)
		sources[name] = spillway.New(spillway.Must(shedder.New(&shedder.Options{Name: name})), spillway.Must(breaker.New(&breaker.Options{Name: name})))
	}
	return sources
}

func TestSeriesPerGate(t *testing.T) {
	c := prom.New(fifty(t))
	series := len(collect(c))
	t.Logf("%d series for 25 gates with 50 policies", series)
	require.LessOrEqual(t, series, 25*60, "60 series a gate")
	allocs := testing.AllocsPerRun(10, func() { collect(c) })
	require.Less(t, allocs, float64(series), "a series that has been there before needs less than an allocation")
}

// collect returns what c collects.
func collect(c prometheus.Collector) (all ready) {
	out := make(chan prometheus.Metric, 10_000)
	c.Collect(out)
	for len(out) > 0 {
		all = append(all, <-out)
	}
	return all
}

// ready are metrics that need no collecting.
type ready []prometheus.Metric

func (ready) Describe(chan<- *prometheus.Desc) {}

func (r ready) Collect(out chan<- prometheus.Metric) {
	for _, m := range r {
		out <- m
	}
}

func BenchmarkCollectFiftyPolicies(b *testing.B) {
	c := prom.New(fifty(b))
	out := make(chan prometheus.Metric, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		c.Collect(out)
		for len(out) > 0 {
			<-out
		}
	}
}

// ready is the part of the client library: it checks and writes metrics that have been collected.
func BenchmarkScrapeFiftyPolicies(b *testing.B) {
	c := prom.New(fifty(b))
	for name, c := range map[string]prometheus.Collector{"all": c, "ready": collect(c)} {
		b.Run(name, func(b *testing.B) {
			registry := prometheus.NewRegistry()
			registry.MustRegister(c)
			h := promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true})
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
			}
		})
	}
}
