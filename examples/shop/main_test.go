package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/breaker"
)

// A settings for a test: free ports, and no pause at the end.
func anywhere() settings {
	return settings{http: "127.0.0.1:0", grpc: "127.0.0.1:0", debug: "127.0.0.1:0"}
}

func opened(t *testing.T) *caller {
	t.Helper()
	s, err := open(t.Context(), anywhere())
	require.NoError(t, err)
	c, err := newCaller(s)
	require.NoError(t, err)
	t.Cleanup(func() {
		c.close()
		require.NoError(t, s.close())
	})
	return c
}

func TestRoutes(t *testing.T) {
	c := opened(t)
	for _, k := range []struct {
		method, path string
		status       int
		body         string
	}{
		{http.MethodGet, "/items/7", 200, "item 7\n"},
		{http.MethodGet, "/items/101", 404, "no such item\n"},
		{http.MethodGet, "/items/x", 404, "no such item\n"},
		{http.MethodPost, "/orders/8", 200, "bought item 8\n"},
		{http.MethodGet, "/reports", 200, "4 items\n"},
		{http.MethodGet, "/livez", 200, "alive\n"},
		{http.MethodGet, "/readyz", 200, "ready\n"},
		{http.MethodGet, "/nothing", 404, "404 page not found\n"},
	} {
		status, _, body := c.ask(t.Context(), "ada", k.method, k.path)
		require.Equal(t, k.status, status, k.path)
		require.Equal(t, k.body, body, k.path)
	}
	require.Equal(t, 200, c.call("ada")(t.Context()))
	require.Equal(t, int64(2), c.shop.shed.Stats().AdmittedSheddable+c.shop.shed.Stats().AdmittedCritical, "the report and the order")
}

func TestPaymentsAreRetriedAndThenLeftAlone(t *testing.T) {
	c := opened(t)
	for range 30 { // each tenth call of the payment service fails
		status, _, _ := c.ask(t.Context(), "bob", http.MethodPost, "/orders/8")
		require.Equal(t, 200, status)
	}
	require.Greater(t, c.shop.payments.transport.Stats().Retries, int64(1))
	c.shop.payments.broken.Store(true)
	refused := 0
	for range 30 {
		status, header, _ := c.ask(t.Context(), "bob", http.MethodPost, "/orders/8")
		if status == http.StatusServiceUnavailable && header.Get("Retry-After") != "" {
			refused++
		}
	}
	require.Greater(t, refused, 10, "the breaker refuses most of them")
	require.Equal(t, breaker.Open, c.shop.payments.brk.Stats().State)
	require.LessOrEqual(t, c.shop.gate.Stats().Failed, int64(30-refused), "a refusal of the breaker is no failure of the shop")
}

func TestUnreadyBeforeTheEnd(t *testing.T) {
	o := anywhere()
	o.pause = 50 * time.Millisecond
	s, err := open(t.Context(), o)
	require.NoError(t, err)
	c, err := newCaller(s)
	require.NoError(t, err)
	defer c.close()
	s.leaving.Store(true)
	status, _, _ := c.ask(t.Context(), "", http.MethodGet, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	status, _, _ = c.ask(t.Context(), "", http.MethodGet, "/livez")
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, s.close())
}

func TestFlags(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run([]string{"-h"}, &out))
	require.Contains(t, out.String(), "shop shows one service with everything")
	require.Error(t, run([]string{"-nonsense"}, io.Discard))
	require.ErrorContains(t, run([]string{"-http", "127.0.0.1:99999"}, io.Discard), "99999")
	require.Error(t, run([]string{"-dsn", "postgres://localhost:1/?connect_timeout=1"}, io.Discard))
}

// A check that finds a broken promise fails, and one that finds none writes its figures.
func TestVerdict(t *testing.T) {
	var v verdict
	v.expect(true, "fine")
	require.Empty(t, v.broken)
	v.expect(false, "got %d", 7)
	require.EqualError(t, v.broken[0], "got 7")
}

// A phase is repeated while it breaks promises, but not for ever, and a busy machine is no broken promise.
func TestAttempts(t *testing.T) {
	for _, late := range []time.Duration{0, mostLate, mostLate + 1} {
		testAttempts(t, late)
	}
}

func testAttempts(t *testing.T, late time.Duration) {
	t.Helper()
	for want, failures := range map[int]int{1: 0, 2: 1, mostAttempts: 9} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			var f figures
			n := 0
			broken := attempts(t.Context(), &out, &f, func(_ context.Context, v *verdict, f *figures) {
				n++
				f.Load = float64(n)
				v.late = late
				v.expect(n > failures, "attempt %d", n)
			})
			require.Equal(t, want, n)
			require.InDelta(t, n, f.Load, 0, "the figures are those of the last attempt")
			require.Equal(t, n-1, strings.Count(out.String(), "once more: attempt"))
			require.Equal(t, failures >= mostAttempts && late <= mostLate, len(broken) == 1)
			require.Equal(t, failures >= mostAttempts && late > mostLate, f.Unjudged == 1)
		})
	}
}
