// Package flood tests an example: a real server on this machine, with a gate per group of routes, under more requests than
// its gates admit.
//
//	func TestFlood(t *testing.T) {
//		flood.Run(t, flood.Site{Start: flood.Handler(newHandler)})
//	}
//
// A server has the routes /api/work, /api/fail, /api/panic and /admin/work, and /livez outside of the gates. Work takes as
// long as the query parameter "for" says, or until its client is gone.
package flood

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

const (
	places  = 4  // requests that each gate admits at once
	clients = 20 // clients that flood the server
	rounds  = 5  // requests of each client

	// Patience is far longer than anything here takes, even on a machine with much else to do.
	Patience = 30 * time.Second
)

// A Site is the server of an example.
type Site struct {
	// Start starts a server with the gates of its groups, which ends with the test, and returns its URL.
	Start func(t *testing.T, api, admin *spillway.Gate) (url string)
	// Request returns a request to a route of a group, whose handler takes the given time. If Request is nil, it is a
	// GET of /group/route?for=takes.
	Request func(ctx context.Context, t *testing.T, url, group, route string, takes time.Duration) *http.Request
	// Refused checks the answer to a request that was refused.
	// If Refused is nil, it is Problem.
	Refused func(t *testing.T, a Answer)
	// Deaf says that the server does not notice when a client is gone.
	Deaf bool
}

// An Answer is a response that has been read.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Handler returns a Site.Start for a handler of net/http.
func Handler(newHandler func(api, admin *spillway.Gate) http.Handler) func(*testing.T, *spillway.Gate, *spillway.Gate) string {
	return func(t *testing.T, api, admin *spillway.Gate) string {
		t.Helper()
		srv := httptest.NewUnstartedServer(newHandler(api, admin))
		srv.Config.ErrorLog = log.New(io.Discard, "", 0) // net/http logs each panic
		srv.Config.Protocols = new(http.Protocols)
		srv.Config.Protocols.SetHTTP1(true)
		srv.Config.Protocols.SetUnencryptedHTTP2(true)
		srv.Start()
		t.Cleanup(srv.Close)
		return srv.URL
	}
}

// Problem checks the default answer of httpgate to a request that was refused for lack of room.
func Problem(t *testing.T, a Answer) {
	require.Equal(t, http.StatusServiceUnavailable, a.Status)
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	var problem struct {
		Type   string
		Title  string
		Status int
	}
	require.NoError(t, json.Unmarshal(a.Body, &problem), "%s", a.Body)
	require.Contains(t, problem.Type, "temporary-reduced-capacity")
	require.NotEmpty(t, problem.Title)
	require.Equal(t, http.StatusServiceUnavailable, problem.Status)
}

// Run floods the server of site and checks what it answers, and that no permit is lost.
func Run(t *testing.T, site Site) {
	if site.Refused == nil {
		site.Refused = Problem
	}
	if site.Request == nil {
		site.Request = get
	}
	for name, check := range map[string]func(*run){
		"full": (*run).full, "panic": (*run).panics, "fail": (*run).fails, "flood": (*run).flood,
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{T: t, site: site, api: gate(), admin: gate(), client: &http.Client{Transport: &http.Transport{}, Timeout: Patience}}
			r.url = site.Start(t, r.api, r.admin)
			t.Cleanup(r.client.CloseIdleConnections)
			check(r)
			r.empty()
		})
	}
}

func gate() *spillway.Gate {
	return spillway.New(spillway.Must(limiter.New(limiter.Concurrency{Limit: places})))
}

func get(ctx context.Context, t *testing.T, url, group, route string, takes time.Duration) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/"+group+"/"+route+"?for="+takes.String(), nil)
	require.NoError(t, err)
	return req
}

// A run is one test of a site.
type run struct {
	*testing.T

	site       Site
	api, admin *spillway.Gate
	url        string
	client     *http.Client
}

// send sends a request and returns the answer, or an error if there is none.
func (r *run) send(req *http.Request) (Answer, error) {
	res, err := r.client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return Answer{res.StatusCode, res.Header, body}, err
}

// to sends a request to a route and returns the answer.
func (r *run) to(group, route string) Answer {
	a, err := r.send(r.site.Request(r.Context(), r.T, r.url, group, route, 0))
	require.NoError(r, err)
	return a
}

// refused checks that an answer is a refusal.
func (r *run) refused(a Answer) {
	r.site.Refused(r.T, a)
	seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
	require.NoError(r, err)
	require.Positive(r, seconds)
}

// empty waits until nothing is in flight.
func (r *run) empty() {
	require.Eventually(r, func() bool { return r.api.Stats().InFlight == 0 && r.admin.Stats().InFlight == 0 },
		Patience, time.Millisecond, "permits were lost")
}

// full fills all places of one gate. Only that gate refuses then, and it admits again when its clients have left.
func (r *run) full() {
	takes := Patience
	if r.site.Deaf {
		takes = 2 * time.Second
	}
	ctx, leave := context.WithCancel(r.Context())
	var wg sync.WaitGroup
	for range places {
		req := r.site.Request(ctx, r.T, r.url, "api", "work", takes)
		wg.Go(func() {
			_, _ = r.send(req) // most are gone before there is an answer
		})
	}
	require.Eventually(r, func() bool { return r.api.Stats().InFlight == places }, Patience, time.Millisecond)
	for range places {
		r.refused(r.to("api", "work"))
		require.Equal(r, http.StatusOK, r.to("admin", "work").Status, "the other gate has room")
	}
	r.live()
	leave()
	wg.Wait()
	left := time.Now()
	r.empty()
	stats := r.api.Stats()
	if r.site.Deaf {
		require.Equal(r, int64(places), stats.Succeeded)
	} else {
		require.Less(r, time.Since(left), takes/2, "the handlers ended with their clients")
		require.Equal(r, int64(places), stats.Ignored)
	}
	require.Equal(r, int64(places), stats.Refused)
	require.Equal(r, http.StatusOK, r.to("api", "work").Status)
}

// live checks that a probe of the server passes.
func (r *run) live() {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.url+"/livez", nil)
	require.NoError(r, err)
	a, err := r.send(req)
	require.NoError(r, err)
	require.Equal(r, http.StatusOK, a.Status)
}

// panics has more handlers panic than there are places.
func (r *run) panics() {
	for range 2 * places {
		a, err := r.send(r.site.Request(r.Context(), r.T, r.url, "api", "panic", 0))
		if err == nil { // without a middleware that recovers, net/http closes the connection
			require.Equal(r, http.StatusInternalServerError, a.Status)
		}
	}
	r.failed()
}

// fails has more handlers fail than there are places.
func (r *run) fails() {
	for range 2 * places {
		require.Equal(r, http.StatusInternalServerError, r.to("api", "fail").Status)
	}
	r.failed()
}

// failed checks that the gate saw that each request failed.
func (r *run) failed() {
	r.empty()
	stats := r.api.Stats()
	require.Equal(r, int64(2*places), stats.Admitted)
	require.Equal(r, stats.Admitted, stats.Failed, "%+v", stats)
}

// flood sends many requests at once: each is served or refused, and the gate counts the same.
func (r *run) flood() {
	var mu sync.Mutex
	var served int64
	var refusals []Answer
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range rounds {
				a, err := r.send(r.site.Request(r.Context(), r.T, r.url, "api", "work", 10*time.Millisecond))
				if err != nil {
					r.Error(err)
					return
				}
				mu.Lock()
				if a.Status == http.StatusOK {
					served++
				} else {
					refusals = append(refusals, a)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, a := range refusals {
		r.refused(a)
	}
	r.empty()
	stats := r.api.Stats()
	refused := int64(len(refusals))
	require.Equal(r, int64(clients*rounds), served+refused)
	require.Equal(r, served, stats.Succeeded, "%+v", stats)
	require.Equal(r, refused, stats.Refused, "%+v", stats)
	require.GreaterOrEqual(r, served, int64(places))
	r.Logf("%d served, %d refused", served, refused)
}
