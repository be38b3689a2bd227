package httpgate_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// perTenant returns n limits per key with room for all that a test can send, or for nothing.
func perTenant(t testing.TB, n int, room bool) (policies []spillway.Policy, quotas []quoter) {
	t.Helper()
	for i := range n {
		o := limiter.Bucket{Name: "tenant " + strconv.Itoa(i), Rate: limiter.Per(1, time.Hour), Burst: 1}
		if room {
			o.Rate, o.Burst = limiter.Per(1_000_000, time.Second), 1_000_000_000
		}
		keyed, err := limiter.NewKeyed(o, nil)
		require.NoError(t, err)
		policies, quotas = append(policies, keyed), append(quotas, keyed)
	}
	return policies, quotas
}

// tenants are handlers with 1 and 3 limits, with and without fields, in pairs to be compared.
func tenants(t testing.TB, room bool) (all []namedHandler) {
	t.Helper()
	key := httpgate.KeyBy(httpgate.HeaderKey("X-Tenant"))
	for _, n := range []int{1, 3} {
		policies, quotas := perTenant(t, n, room)
		for _, c := range []struct {
			name   string
			limits *httpgate.RateLimit
		}{
			{"plain", nil},
			{"draft", &httpgate.RateLimit{Limits: quotasOf(quotas...)}},
			{"X", &httpgate.RateLimit{Limits: quotasOf(quotas...), X: true}},
			{"both", &httpgate.RateLimit{Limits: quotasOf(quotas...), Draft: true, X: true}},
		} {
			h := httpgate.Handler(spillway.New(policies...), &httpgate.Options{Request: key, RateLimit: c.limits})
			all = append(all, namedHandler{strconv.Itoa(n) + "/" + c.name, h(http.HandlerFunc(typed))})
		}
	}
	return all
}

// typed is fine with a header field, as most answers have.
func typed(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	fine(w, r)
}

func tenantRequest() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Tenant", "blue")
	return r
}

func TestRateLimitAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	for _, room := range []bool{true, false} {
		var plain float64
		for i, c := range tenants(t, room) {
			w, r := &nowhere{http.Header{}}, tenantRequest()
			c.h.ServeHTTP(w, r) // takes all that there is, if there is no room
			got := testing.AllocsPerRun(500, func() {
				clear(w.header)
				c.h.ServeHTTP(w, r)
			})
			if i%4 == 0 {
				plain = got
			}
			most := 0.0
			if room {
				most = 2
			}
			require.LessOrEqual(t, got-plain, most, "%s, room: %v", c.name, room)
		}
	}
}

var sides = []struct {
	name string
	room bool
}{{"admitted", true}, {"refused", false}}

// BenchmarkRateLimit is what the fields add, in pairs: plain is the same handler without them.
func BenchmarkRateLimit(b *testing.B) {
	for _, side := range sides {
		for _, c := range tenants(b, side.room) {
			b.Run(side.name+"/"+c.name+"/serial", func(b *testing.B) {
				w, r := &nowhere{http.Header{}}, tenantRequest()
				c.h.ServeHTTP(w, r)
				b.ReportAllocs()
				for b.Loop() {
					clear(w.header)
					c.h.ServeHTTP(w, r)
				}
			})
			b.Run(side.name+"/"+c.name+"/parallel", func(b *testing.B) {
				c.h.ServeHTTP(&nowhere{http.Header{}}, tenantRequest())
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					w, r := &nowhere{http.Header{}}, tenantRequest()
					for pb.Next() {
						clear(w.header)
						c.h.ServeHTTP(w, r)
					}
				})
			})
		}
	}
}

// BenchmarkRateLimitServer is one request through a whole HTTP/1.1 server, as in BenchmarkServer.
func BenchmarkRateLimitServer(b *testing.B) {
	for _, side := range sides {
		for _, c := range tenants(b, side.room) {
			b.Run(side.name+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				conn := &endless{n: b.N, closed: make(chan struct{})}
				srv := &http.Server{Handler: c.h}
				b.ResetTimer()
				_ = srv.Serve(&oneConn{conn: conn})
				<-conn.closed
			})
		}
	}
}
