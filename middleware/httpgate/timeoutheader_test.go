package httpgate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestTimeoutHeader(t *testing.T) {
	for _, c := range []struct {
		value string
		unit  time.Duration
		want  time.Duration
	}{
		{"2", time.Second, 2 * time.Second},
		{"1.5", time.Second, 1500 * ms},
		{".25", time.Second, 250 * ms},
		{"3.", time.Second, 3 * time.Second},
		{"1500", ms, 1500 * ms},
		{"2H", 0, 2 * time.Hour},
		{"2M", 0, 2 * time.Minute},
		{"5S", 0, 5 * time.Second},
		{"100m", 0, 100 * ms},
		{"100u", 0, 100 * time.Microsecond},
		{"100n", 0, 100},
		{"100m", time.Second, 100 * ms},
		{"99999999H", 0, 365 * 24 * time.Hour},
		{"99999999999999999999999999999999", time.Second, 365 * 24 * time.Hour},
		{"999999999999999999999999999999999", time.Second, 0},
		{"100", 0, 0},
		{"0", time.Second, 0},
		{"0S", 0, 0},
		{"", time.Second, 0},
		{"S", time.Second, 0},
		{".", time.Second, 0},
		{"-1", time.Second, 0},
		{"+1", time.Second, 0},
		{"1e3", time.Second, 0},
		{"1.2.3", time.Second, 0},
		{" 1", time.Second, 0},
		{"NaN", time.Second, 0},
		{"inf", time.Second, 0},
		{"150ms", time.Second, 0},
		{"soon", time.Second, 0},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Request-Timeout", c.value)
		require.Equal(t, c.want, httpgate.TimeoutHeader("x-request-timeout", c.unit)(r), "%q in %v", c.value, c.unit)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	require.Zero(t, httpgate.TimeoutHeader("X-Request-Timeout", time.Second)(r), "no header")
}

func FuzzTimeoutHeader(f *testing.F) {
	f.Add("1.5S", int64(time.Second))
	f.Fuzz(func(t *testing.T, value string, unit int64) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("T", value)
		d := httpgate.TimeoutHeader("T", time.Duration(unit))(r)
		require.LessOrEqual(t, d, 365*24*time.Hour)
		if unit >= 0 {
			require.GreaterOrEqual(t, d, time.Duration(0))
		}
	})
}

func ExampleTimeoutHeader() {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Request-Timeout", "1.5")
	r.Header.Set("Connect-Timeout-Ms", "200")
	r.Header.Set("Grpc-Timeout", "100m")
	fmt.Println(httpgate.TimeoutHeader("X-Request-Timeout", time.Second)(r))
	fmt.Println(httpgate.TimeoutHeader("Connect-Timeout-Ms", time.Millisecond)(r))
	fmt.Println(httpgate.TimeoutHeader("Grpc-Timeout", 0)(r))
	// Output:
	// 1.5s
	// 200ms
	// 100ms
}
