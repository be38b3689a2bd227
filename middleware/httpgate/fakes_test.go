package httpgate_test

import (
	"context"
	"crypto/tls"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

var (
	errFull      = &spillway.Rejection{Policy: "fake", Reason: "full"}
	errOverQuota = &spillway.Rejection{Policy: "fake", Reason: "over quota", OverQuota: true}
)

// refuser is a Policy that refuses everything and remembers nothing.
type refuser struct{ refusal *spillway.Rejection }

func (p refuser) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	return 0, p.refusal
}
func (p refuser) Done(spillway.Request, spillway.Ticket, spillway.Result) {}

// admitter is a Policy that admits everything and remembers nothing.
type admitter struct{}

func (admitter) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, nil }
func (admitter) Done(spillway.Request, spillway.Ticket, spillway.Result)          {}

// shut returns a gate that refuses everything.
func shut() *spillway.Gate { return spillway.New(refuser{errFull}) }

// middleware returns a Middleware in front of policies.
func middleware(t *testing.T, o *httpgate.Options, policies ...spillway.Policy) *httpgate.Middleware {
	t.Helper()
	m, err := httpgate.New(spillway.New(policies...), o)
	require.NoError(t, err)
	return m
}

// serve runs one GET through h in memory and returns what it answered.
func serve(h http.Handler, path string) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Result()
}

// served returns the outcome that a Policy learns of a request that handler served.
func served(t *testing.T, handler http.HandlerFunc) spillway.Outcome {
	t.Helper()
	p := &gatetest.Recorder{}
	serve(middleware(t, nil, p).Handler(handler), "/")
	require.Len(t, p.Outcomes(), 1)
	return p.Outcomes()[0]
}

func answer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

func unreachable(t *testing.T) http.HandlerFunc {
	t.Helper()
	return func(http.ResponseWriter, *http.Request) { t.Error("the handler of a refused request ran") }
}

// bothProtocols yields the address and a client of a real server with handler h, once over HTTP/1.1 and once over HTTP/2.
func bothProtocols(t *testing.T, h http.Handler) iter.Seq2[string, *http.Client] {
	t.Helper()
	return func(yield func(string, *http.Client) bool) {
		for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Log("over", proto)
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, proto, r.Proto)
				h.ServeHTTP(w, r)
			}))
			srv.EnableHTTP2 = proto == "HTTP/2.0"
			srv.StartTLS()
			defer srv.Close()
			client := srv.Client()
			if proto == "HTTP/1.1" {
				client.Transport.(*http.Transport).TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
			}
			if !yield(srv.URL, client) {
				return
			}
		}
	}
}
