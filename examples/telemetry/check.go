package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/cluster/lease"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
	"github.com/spillway-go/spillway/telemetry/grafana"
)

// figures are the result, as -json writes it.
type figures struct {
	Series         int `json:"series"`
	Panels         int `json:"panels"`
	PanelsWithData int `json:"panels_with_data"`
	Alerts         int `json:"alerts"`
	PageBytes      int `json:"page_bytes"`
	Instruments    int `json:"otel_instruments"`
}

// scraped is how long Prometheus scrapes, once a second.
const scraped = 30 * time.Second

// check prints the figures, and returns the exit status: 1 if a panel has no data.
func check(file string) (status int) {
	reader := sdkmetric.NewManualReader()
	service := newService()
	mux, page := telemetry(service.sources(), reader)
	defer page.Close()
	mux.Handle("/", service.handler)
	server := httptest.NewServer(mux)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), scraped+time.Minute)
	defer cancel()
	api := prometheusOn(ctx, server.Listener.Addr().String())
	service.load(ctx, server.URL)

	var f figures
	var missing []string
	f.Series = len(regexp.MustCompile(`(?m)^spillway_`).FindAllString(fetch(server.URL+"/metrics"), -1))
	f.Panels, missing = panelsWithoutData(api)
	f.PanelsWithData = f.Panels - len(missing)
	f.Alerts = strings.Count(fetch(api+"/api/v1/rules?type=alert"), `"type":"alerting"`)
	f.PageBytes = pageBytes(server.URL + "/debug/spillway/")
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err == nil && len(all.ScopeMetrics) > 0 {
		f.Instruments = len(all.ScopeMetrics[0].Metrics)
	}
	out, err := json.Marshal(f)
	fmt.Println(string(out))
	if file != "" {
		err = os.WriteFile(file, append(out, '\n'), 0o600)
	}
	if err != nil || len(missing) > 0 || f.Alerts == 0 || f.PageBytes == 0 || f.Instruments == 0 {
		fmt.Println(err, "without data:", strings.Join(missing, "; "))
		return 1
	}
	return 0
}

// A service has a policy of every kind that the board shows.
type service struct {
	gate, db *spillway.Gate
	exact    *exact.Limit
	lease    *lease.Limit
	handler  http.Handler
}

func newService() *service {
	const nowhere = "127.0.0.1:1" // no Redis: the limits fall back
	client := redis.NewClient(&redis.Options{Addr: nowhere, MaxRetries: -1, DialerRetries: 1})
	rate := limiter.Bucket{Name: "tenants", Rate: limiter.Per(100, time.Second)}
	s := &service{
		gate: spillway.New(
			spillway.Must(limiter.NewKeyed(rate, nil)),
			spillway.Must(limiter.New(limiter.Queue{Name: "jobs", Limit: 4, MaxQueue: 8, MaxWait: 50 * time.Millisecond})),
			spillway.Must(shedder.New(&shedder.Options{Name: "api"})),
		),
		db:    spillway.New(spillway.Must(breaker.New(&breaker.Options{Name: "db", Consecutive: 3, OpenFor: time.Second}))),
		exact: spillway.Must(exact.New(&exact.Options{Name: "plan", Client: client, Rules: []limiter.Rule{rate}, Fallback: cluster.AllowAll})),
		lease: spillway.Must(lease.New(&lease.Options{Name: "share", Client: client, Rule: rate, Nodes: 1})),
	}
	tenant := func(r *http.Request) spillway.Request {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		return spillway.Request{Key: strconv.Itoa(n % 5), Priority: spillway.Priority(n%3*4 - 4)}
	}
	s.handler = httpgate.Handler(s.gate, &httpgate.Options{Request: tenant})(http.HandlerFunc(s.serve))
	return s
}

func (s *service) sources() map[string]stats.Source {
	return map[string]stats.Source{"api": s.gate, "db": s.db, "plan": s.exact, "share": s.lease}
}

// serve asks the limits of the cluster, and a dependency that fails for a while every ten seconds.
func (s *service) serve(w http.ResponseWriter, r *http.Request) {
	for _, p := range []spillway.Policy{s.exact, s.lease} {
		req := spillway.Request{Key: "k", Arrived: time.Now()}
		if t, err := p.Admit(r.Context(), req); err == nil {
			p.Done(req, t, spillway.Result{Outcome: spillway.Success})
		}
	}
	err := spillway.Do(r.Context(), s.db, spillway.Request{}, func(context.Context) error {
		time.Sleep(5 * time.Millisecond)
		if time.Now().Second()%10 < 2 {
			return io.ErrUnexpectedEOF
		}
		return nil
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// load sends requests until Prometheus has scraped for long enough.
func (s *service) load(ctx context.Context, to string) {
	ctx, cancel := context.WithTimeout(ctx, scraped)
	defer cancel()
	var callers sync.WaitGroup
	for caller := range 30 {
		callers.Go(func() {
			for n := caller; ctx.Err() == nil; n++ {
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint(to, "/?n=", n), nil)
				if res, err := http.DefaultClient.Do(r); err == nil {
					res.Body.Close()
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	callers.Wait()
}

// prometheusOn starts a Prometheus that scrapes target once a second, and returns the address of its API.
func prometheusOn(ctx context.Context, target string) string {
	dir, err := os.MkdirTemp("", "spillway-telemetry")
	if err != nil {
		log.Fatal(err)
	}
	context.AfterFunc(ctx, func() { os.RemoveAll(dir) })
	config := "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\n" +
		"scrape_configs: [{job_name: telemetry, static_configs: [{targets: ['" + target + "']}]}]\n"
	for name, text := range map[string]string{"prometheus.yml": config, "rules.yml": grafana.Rules} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	cmd := exec.CommandContext(ctx, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+dir,
		"--web.listen-address="+addr, "--log.level=error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		log.Fatal("apt-get install prometheus: ", err)
	}
	return "http://" + addr
}

// panelsWithoutData asks for the data of each panel, and returns their number and the titles of those that have none.
func panelsWithoutData(api string) (panels int, missing []string) {
	var board struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(grafana.Board), &board); err != nil {
		log.Fatal(err)
	}
	now := time.Now()
	variables := strings.NewReplacer("$job", ".*", "$instance", ".*", "$name", ".*", "$__rate_interval", "10s")
	for _, p := range board.Panels {
		if p.Type == "row" {
			continue
		}
		panels++
		for _, t := range p.Targets {
			query := url.Values{
				"query": {variables.Replace(t.Expr)}, "step": {"1"},
				"start": {fmt.Sprint(now.Add(-scraped).Unix())}, "end": {fmt.Sprint(now.Unix())},
			}
			var answer struct {
				Status string
				Data   struct{ Result []struct{ Values []any } }
			}
			err := json.Unmarshal([]byte(fetch(api+"/api/v1/query_range?"+query.Encode())), &answer)
			if err != nil || answer.Status != "success" || len(answer.Data.Result) == 0 {
				missing = append(missing, p.Title+": "+t.Expr)
				break
			}
		}
	}
	return panels, missing
}

// pageBytes returns the size of a page and the files that it names.
func pageBytes(page string) int {
	html := fetch(page)
	size := len(html)
	for _, link := range regexp.MustCompile(`(?:src|href)="([^":]+)"`).FindAllStringSubmatch(html, -1) {
		size += len(fetch(page + link[1]))
	}
	return size
}

func fetch(from string) string {
	res, err := http.Get(from) //nolint:gosec // addresses of this process
	if err != nil {
		log.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK {
		log.Fatalf("%s: %s %v %s", from, res.Status, err, text)
	}
	return string(text)
}
