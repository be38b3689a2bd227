package httpgate_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// emptyBody ends at once and costs nothing.
type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }

// exchange sends r through rt, reads the answer and closes it.
func exchange(rt http.RoundTripper, r *http.Request, buf []byte) {
	res, err := rt.RoundTrip(r)
	if err == nil {
		_, _ = res.Body.Read(buf)
		res.Body.Close()
	}
}

// calls are, side by side, what is to be compared with the bare RoundTripper.
func calls(ctx context.Context) (r *http.Request, calls []namedTripper) {
	r = outgoing(ctx, nil)
	r.Body = nil
	base := roundTripFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: emptyBody{}}, nil
	})
	gate := spillway.New(admitter{})
	return r, []namedTripper{
		{"bare", base},
		{"admitted", spillway.Must(httpgate.NewTransport(gate, base, nil))},
		{"admitted to the header", spillway.Must(httpgate.NewTransport(gate, base, &httpgate.TransportOptions{AtHeader: true}))},
		{"refused", spillway.Must(httpgate.NewTransport(shut(), base, nil))},
	}
}

type namedTripper struct {
	name string
	rt   http.RoundTripper
}

func TestAllocationsOfACall(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, calls := calls(ctx)
	buf := make([]byte, 8)
	want := map[string]float64{"bare": 1, "admitted": 1 + 7, "admitted to the header": 1 + 1, "refused": 0}
	if strings.HasPrefix(runtime.Version(), "go1.25") {
		want["admitted"]++ // measured; Go 1.26 saves it
	}
	for _, c := range calls {
		got := testing.AllocsPerRun(1000, func() { exchange(c.rt, r, buf) })
		require.LessOrEqual(t, got, want[c.name], c.name)
	}
}

func BenchmarkCall(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	r, calls := calls(ctx)
	for _, c := range calls {
		b.Run(c.name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 8)
			for b.Loop() {
				exchange(c.rt, r, buf)
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				buf := make([]byte, 8)
				for pb.Next() {
					exchange(c.rt, r, buf)
				}
			})
		})
	}
}
