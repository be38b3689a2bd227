package httpgate_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestRoutesAreJudgedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := middleware(t, &httpgate.Options{Deadline: &httpgate.Deadline{
			Route:     func(r *http.Request) string { return r.Header.Get("Route") },
			MaxRoutes: 2,
		}})
		takes := map[string]time.Duration{"": 100 * ms, "slow": 100 * ms, "quick": ms, "third": 100 * ms}
		h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(takes[r.Header.Get("Route")])
		}))
		for _, route := range []string{"slow", "", "quick", "third"} {
			teachRoute(h, route)
		}
		for _, c := range []struct {
			route string
			want  int
		}{{"slow", 503}, {"", 200}, {"quick", 200}, {"third", 200}} { // slow comes first: later it might be a probe
			ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			r.Header.Set("Route", c.route)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, c.want, w.Code, "route %q", c.route)
		}
	})
}

// A route that fails at once is not quick.
func TestFailuresTeachNothing(t *testing.T) {
	for _, status := range []int{404, 429, 500, 503} {
		synctest.Test(t, func(t *testing.T) {
			next := &slowly{takes: 100 * ms}
			m := middleware(t, &httpgate.Options{Deadline: &httpgate.Deadline{Route: oneRoute}})
			h := m.Handler(next)
			teach(h)
			next.takes, next.status = 0, status
			for range 100 {
				serve(h, "/")
			}
			require.Equal(t, http.StatusServiceUnavailable, within(t, h, 90*ms), status)
			require.Equal(t, int64(1), m.Stats().TooLate, status)
		})
	}
}

// A service is too slow for all of its clients, so that none of its requests succeeds.
func TestLearnsFromRequestsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &slowly{takes: 200 * ms}
		m := middleware(t, &httpgate.Options{Deadline: &httpgate.Deadline{Route: oneRoute}})
		h := m.Handler(next)
		for range 1000 {
			within(t, h, 50*ms)
		}
		require.Less(t, next.ran.Load(), int64(100))
		require.Equal(t, 1000-next.ran.Load(), m.Stats().TooLate)
	})
}

func TestNoticesThatTheServiceIsQuickAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &slowly{takes: 200 * ms}
		m := middleware(t, &httpgate.Options{Deadline: &httpgate.Deadline{Route: oneRoute}})
		h := m.Handler(next)
		teach(h)
		next.takes = 5 * ms
		refused := 0
		for range 10_000 {
			time.Sleep(ms)
			if within(t, h, 20*ms) == http.StatusServiceUnavailable {
				refused++
			}
		}
		require.Greater(t, refused, 1000)
		require.Equal(t, http.StatusOK, within(t, h, 20*ms))
		require.Less(t, refused, 9000)
	})
}
