package httpgate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// full is a policy that has no room.
type full struct{}

func (full) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, errFull }
func (full) Done(spillway.Request, spillway.Ticket, spillway.Result)          {}

func ExampleProxyError() {
	gate := spillway.New(full{})
	upstream, _ := url.Parse("http://upstream.test")

	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.Transport = spillway.Must(httpgate.NewTransport(gate, nil, nil))
	proxy.ErrorHandler = httpgate.ProxyError(nil)

	w := httptest.NewRecorder()
	proxy.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Code, w.Header().Get("Retry-After") != "")
	// Output: 503 true
}

func ExampleExemptPaths() {
	exempt := httpgate.ExemptPaths("/healthz", "/debug/pprof/profile")
	for _, target := range []string{"/healthz", "/healthz?x", "/debug/pprof/../../admin", "/debug/pprof/profile"} {
		fmt.Println(target, exempt(httptest.NewRequest(http.MethodGet, target, nil)))
	}
	// Output:
	// /healthz true
	// /healthz?x false
	// /debug/pprof/../../admin false
	// /debug/pprof/profile true
}
