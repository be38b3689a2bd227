package httpgate_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/deadline"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestDeadlineAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	for _, c := range deadlineCases() {
		w, r := &nowhere{http.Header{}}, c.request()
		teach(c.h)
		bare := testing.AllocsPerRun(1000, inMemory(http.HandlerFunc(fine), w, r))
		require.LessOrEqual(t, testing.AllocsPerRun(1000, inMemory(c.h, w, r))-bare, c.over, c.name)
	}
}

type deadlineCase struct {
	name    string
	h       http.Handler
	timeout string  // what the client says
	over    float64 // allocations over those of the bare handler
}

// deadlineCases are, side by side, what a policy of package deadline costs: a request that is admitted without and with
// one, and refused. A timeout also needs a context, a timer and a copy of the request.
func deadlineCases() []deadlineCase {
	of := func(policies ...spillway.Policy) http.Handler {
		return httpgate.Handler(spillway.New(policies...), byClient(httpgate.TimeoutHeader("X-Request-Timeout", time.Second)))(http.HandlerFunc(fine))
	}
	without, with := of(admitter{}), of(spillway.Must(deadline.New(nil)), admitter{})
	return []deadlineCase{
		{"without", without, "soon", 1},
		{"no deadline", with, "soon", 1},
		{"in time", with, "30", 9},
		{"too late", with, "0.000000001", 0},
	}
}

func (c deadlineCase) request() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Request-Timeout", c.timeout)
	return r
}

func BenchmarkDeadline(b *testing.B) {
	for _, c := range deadlineCases() {
		teach(c.h)
		b.Run(c.name, func(b *testing.B) {
			w, r := &nowhere{http.Header{}}, c.request()
			b.ReportAllocs()
			for b.Loop() {
				c.h.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkDeadlineServer is BenchmarkDeadline through a whole HTTP/1.1 server.
func BenchmarkDeadlineServer(b *testing.B) {
	for _, c := range deadlineCases() {
		teach(c.h)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			request := strings.Replace(rawRequest, "\r\n\r\n", "\r\nX-Request-Timeout: "+c.timeout+"\r\n\r\n", 1)
			conn := &endless{n: b.N, request: request, closed: make(chan struct{})}
			srv := &http.Server{Handler: c.h}
			b.ResetTimer()
			_ = srv.Serve(&oneConn{conn: conn})
			<-conn.closed
		})
	}
}
