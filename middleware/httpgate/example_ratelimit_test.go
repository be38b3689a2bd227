package httpgate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// printer is a Policy that prints the key of each request.
type printer struct{}

func (printer) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	fmt.Println(strings.ReplaceAll(r.Key, "\x1f", " | "))
	return 0, nil
}
func (printer) Done(spillway.Request, spillway.Ticket, spillway.Result) {}

// ask sends a GET with fields to h, from a peer, and returns the answer.
func ask(h http.Handler, path, peer string, fields ...string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = peer
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func ExampleNewClientIP() {
	ip := spillway.Must(httpgate.NewClientIP(&httpgate.ClientIPOptions{
		Header:  "X-Forwarded-For", // as the proxies below write it
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	}))
	protect := httpgate.Handler(spillway.New(printer{}), &httpgate.Options{Request: httpgate.KeyBy(ip.Key)})

	h := protect(http.HandlerFunc(hello))
	ask(h, "/", "10.0.0.1:4711", "X-Forwarded-For", "198.51.100.7")
	ask(h, "/", "10.0.0.1:4711", "X-Forwarded-For", "203.0.113.9, 198.51.100.7, 10.0.0.2") // the first is forged
	ask(h, "/", "10.0.0.1:4711", "X-Forwarded-For", "2001:db8:1:2:3:4:5:6")
	ask(h, "/", "192.0.2.1:4711", "X-Forwarded-For", "198.51.100.7") // past the proxies
	// Output:
	// 198.51.100.7
	// 198.51.100.7
	// 2001:db8:1:2::/64
	// 192.0.2.1
}

func ExampleKeyBy() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", hello)
	protect := httpgate.Handler(spillway.New(printer{}), &httpgate.Options{
		Request: httpgate.KeyBy(httpgate.HeaderKey("X-Tenant"), httpgate.PatternKey(mux)),
	})

	h := protect(mux)
	ask(h, "/items/1", "192.0.2.1:4711", "X-Tenant", "blue")
	ask(h, "/items/2", "192.0.2.1:4711", "X-Tenant", "blue")
	// Output:
	// blue | GET /items/{id}
	// blue | GET /items/{id}
}

// Keys are for Options.Request, which may say more of a request than whose it is.
func ExampleHeaderKey() {
	tenant := httpgate.HeaderKey("X-Tenant") // set by a proxy of ours that knows the client
	protect := httpgate.Handler(spillway.New(printer{}), &httpgate.Options{
		Request: func(r *http.Request) spillway.Request {
			req := spillway.Request{Key: tenant(r)}
			if strings.HasPrefix(r.URL.Path, "/report/") {
				req.Cost = 10
			}
			return req
		},
	})

	ask(protect(http.HandlerFunc(hello)), "/report/1", "192.0.2.1:4711", "X-Tenant", "blue")
	// Output: blue
}

func ExamplePatternKey() {
	key := httpgate.PatternKey(nil) // inside of the mux
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(_ http.ResponseWriter, r *http.Request) { fmt.Println(key(r)) })
	ask(mux, "/items/1", "192.0.2.1:4711")
	// Output: GET /items/{id}
}

func ExampleRateLimit() {
	bucket := limiter.Bucket{Name: "second", Rate: limiter.Per(10, time.Second)}
	window := limiter.FixedWindow{Name: "day", Limit: 2, Period: 24 * time.Hour}
	perSecond := spillway.Must(limiter.NewKeyed(bucket, nil))
	perDay := spillway.Must(limiter.NewKeyed(window, nil))

	protect := httpgate.Handler(spillway.New(perSecond, perDay), &httpgate.Options{
		Request:   httpgate.KeyBy(httpgate.HeaderKey("X-Tenant")),
		RateLimit: &httpgate.RateLimit{Limits: []httpgate.QuotaFunc{perSecond.Quota, perDay.Quota}},
	})

	h := protect(http.HandlerFunc(hello))
	fmt.Println(ask(h, "/", "192.0.2.1:4711", "X-Tenant", "blue").Header.Get("Ratelimit-Policy"))
	fmt.Println(ask(h, "/", "192.0.2.1:4711", "X-Tenant", "blue").Header.Get("Ratelimit"))
	refused := ask(h, "/", "192.0.2.1:4711", "X-Tenant", "blue")
	fmt.Println(refused.Status, refused.Header["Retry-After"] != nil)
	// Output:
	// "second";q=10;w=1, "day";q=2;w=86400
	// "second";r=8;t=1, "day";r=0;t=86400
	// 429 Too Many Requests true
}

// The older fields, for clients that read those.
func ExampleRateLimit_x() {
	limit := spillway.Must(limiter.New(limiter.FixedWindow{Limit: 60, Period: time.Minute}))
	protect := httpgate.Handler(spillway.New(limit), &httpgate.Options{
		RateLimit: &httpgate.RateLimit{Limits: []httpgate.QuotaFunc{limit.Quota}, Draft: true, X: true},
	})

	header := ask(protect(http.HandlerFunc(hello)), "/", "192.0.2.1:4711").Header
	fmt.Println(header["X-Ratelimit-Limit"], header["X-Ratelimit-Remaining"], header["X-Ratelimit-Reset"])
	// Output: [60] [59] [60]
}

// A framework without http.Handler asks the gate itself, and writes the fields with Set.
func ExampleRateLimit_Set() {
	limit := spillway.Must(limiter.New(limiter.FixedWindow{Name: "minute", Limit: 60, Period: time.Minute}))
	gate := spillway.New(limit)
	fields := &httpgate.RateLimit{Limits: []httpgate.QuotaFunc{limit.Quota}}
	middleware := func(w http.ResponseWriter, r *http.Request, next func()) {
		var req spillway.Request
		permit, err := gate.Enter(r.Context(), req)
		defer permit.Done(spillway.Failure)
		if err = fields.Set(w.Header(), time.Now(), req, err); err != nil {
			httpgate.WriteRefusal(w, r, err)
			return
		}
		next()
		permit.Done(spillway.Success)
	}

	w := httptest.NewRecorder()
	middleware(w, httptest.NewRequest(http.MethodGet, "/", nil), func() {})
	fmt.Println(w.Header().Get("Ratelimit"))
	// Output: "minute";r=59;t=60
}

// A plan is a limit of a service's own that reports what its clients have left.
type plan struct{ used map[string]int64 }

func (p plan) Quota(_ time.Time, r spillway.Request) spillway.Quota {
	return spillway.Quota{Name: "plan", Limit: 1000, Remaining: 1000 - p.used[r.Key], Window: 24 * time.Hour, Reset: time.Hour}
}

func ExampleQuotaFunc() {
	p := plan{used: map[string]int64{"ann": 40}}
	fields := &httpgate.RateLimit{Limits: []httpgate.QuotaFunc{p.Quota}}
	header := http.Header{}
	_ = fields.Set(header, time.Now(), spillway.Request{Key: "ann"}, nil)
	fmt.Println(header["Ratelimit-Policy"], header["Ratelimit"])
	// Output: ["plan";q=1000;w=86400] ["plan";r=960;t=3600]
}
