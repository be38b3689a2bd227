package httpgate_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestPriority(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	own := httpgate.PriorityOptions{Trusted: trusted}
	browser := httpgate.PriorityOptions{Trusted: trusted, Browser: true}
	envoy := httpgate.PriorityOptions{Trusted: trusted, Header: "x-message-priority", LowerFirst: true, NormalIs: 8, Max: 4, Min: -12}
	unix := httpgate.PriorityOptions{TrustUnix: true}
	for _, c := range []struct {
		o      httpgate.PriorityOptions
		remote string
		header http.Header
		want   spillway.Priority
	}{
		{own, "10.1.1.1:5", http.Header{"Spillway-Priority": {"critical"}}, spillway.Critical},
		{own, "[::ffff:10.1.1.1]:5", http.Header{"Spillway-Priority": {"3"}}, 3},
		{own, "10.1.1.1:5", http.Header{"Spillway-Priority": {"-100"}}, spillway.Sheddable},
		{own, "10.1.1.1:5", http.Header{"Spillway-Priority": {"3", "4"}}, spillway.Normal},
		{own, "10.1.1.1:5", http.Header{"Spillway-Priority": {"high"}}, spillway.Normal},
		{own, "10.1.1.1:5", http.Header{}, spillway.Normal},
		{own, "11.1.1.1:5", http.Header{"Spillway-Priority": {"critical"}}, spillway.Normal},
		{own, "@", http.Header{"Spillway-Priority": {"critical"}}, spillway.Normal},
		{own, "11.1.1.1:5", http.Header{"Spillway-Priority": {"4"}, "X-Forwarded-For": {"10.1.1.1"}}, spillway.Normal},
		{own, "10.1.1.1:5", http.Header{"Sec-Purpose": {"prefetch"}, "Priority": {"u=7"}}, spillway.Normal},
		{httpgate.PriorityOptions{}, "127.0.0.1:5", http.Header{"Spillway-Priority": {"4"}}, spillway.Normal},
		{unix, "@", http.Header{"Spillway-Priority": {"4"}}, spillway.Critical},
		{unix, "10.1.1.1:5", http.Header{"Spillway-Priority": {"4"}}, spillway.Normal},
		{browser, "10.1.1.1:5", http.Header{"Priority": {"u=1, i"}}, 2},
		{browser, "10.1.1.1:5", http.Header{"Priority": {"u=1", "u=6"}}, -3},
		{browser, "10.1.1.1:5", http.Header{"Priority": {"u=0"}, "Sec-Purpose": {"prefetch;prerender"}}, spillway.Sheddable},
		{browser, "10.1.1.1:5", http.Header{"Priority": {"u=0"}, "Spillway-Priority": {"-1"}}, -1},
		{browser, "11.1.1.1:5", http.Header{"Priority": {"u=0"}}, spillway.Normal},
		{browser, "11.1.1.1:5", http.Header{"Priority": {"u=5"}}, -2},
		{browser, "11.1.1.1:5", http.Header{"Sec-Purpose": {"Prefetch"}}, spillway.Sheddable},
		{envoy, "10.1.1.1:5", http.Header{"X-Message-Priority": {"0"}}, 4},
		{envoy, "10.1.1.1:5", http.Header{"X-Message-Priority": {"10"}}, -2},
	} {
		priority, err := httpgate.NewPriority(&c.o)
		require.NoError(t, err)
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr, r.Header = c.remote, c.header
		require.Equal(t, c.want, priority(r), "%+v", c)
		require.Zero(t, testing.AllocsPerRun(10, func() {
			if c.remote != "@" && c.header.Get("Spillway-Priority") != "critical" {
				priority(r)
			}
		}))
	}
	_, err := httpgate.NewPriority(&httpgate.PriorityOptions{Header: "a b"})
	require.EqualError(t, err, `httpgate: Priority: Header must be a header field, got "a b"`)
	_, err = httpgate.NewPriority(&httpgate.PriorityOptions{Min: 1, Max: -1})
	require.ErrorContains(t, err, "httpgate: Priority: Min must not be above Max")
	priority, err := httpgate.NewPriority(nil)
	require.NoError(t, err)
	require.Equal(t, spillway.Normal, priority(httptest.NewRequest(http.MethodGet, "/", http.NoBody)))
}

// A watcher keeps the last request that it saw.
type watcher struct{ seen *spillway.Request }

func (w watcher) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	*w.seen = r
	return 0, nil
}

func (watcher) Done(spillway.Request, spillway.Ticket, spillway.Result) {}

// The route of a request is the pattern that the mux found, unless the request has one already.
func TestRouteIsThePattern(t *testing.T) {
	var seen spillway.Request
	gate := spillway.New(watcher{&seen})
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	inside := http.NewServeMux()
	inside.Handle("GET /items/{id}", httpgate.Handler(gate, nil)(handler))
	around := http.NewServeMux()
	around.Handle("GET /items/{id}", handler)
	pattern := httpgate.PatternKey(around)
	named := httpgate.Handler(gate, &httpgate.Options{Request: func(r *http.Request) spillway.Request {
		return spillway.Request{Route: pattern(r)}
	}})(around)
	for name, h := range map[string]http.Handler{"inside a mux": inside, "named by Request": named} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/items/7", http.NoBody))
		require.Equal(t, "GET /items/{id}", seen.Route, name)
	}
	httpgate.Handler(gate, nil)(around).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/items/7", http.NoBody))
	require.Empty(t, seen.Route, "a gate around a mux runs before there is a pattern")

	client := http.Client{Transport: spillway.Must(httpgate.NewTransport(gate, roundTripFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	}), &httpgate.TransportOptions{Route: func(*http.Request) string { return "search" }}))}
	res, err := client.Get("http://x.test/search?q=1")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, "search", seen.Route)
}
