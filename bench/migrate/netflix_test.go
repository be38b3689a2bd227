package migrate

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/bench/peers"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func gradientAfter() (*adaptive.Limit, error) {
	return adaptive.New(&adaptive.Options{Estimator: &adaptive.Gradient2{}, Initial: 20, Min: 20, Max: 200})
}

func netflixAfter(limit *adaptive.Limit, next http.Handler) http.Handler {
	return httpgate.Handler(spillway.New(limit), nil)(next)
}

// Requests fill the limit and take 10 ms, then 100 ms for half a minute. The Java library has no Go module, so the program
// before is the one of package peers, which follows its source.
func TestNetflixLongOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, err := peers.Find("gradient2")
		require.NoError(t, err)
		old, err := peer.New(peers.Facts{})
		require.NoError(t, err)
		limit, err := gradientAfter()
		require.NoError(t, err)
		gate := spillway.New(limit)
		enter := func() (func(), bool) {
			permit, err := gate.Enter(t.Context(), spillway.Request{})
			return func() { permit.Done(spillway.Success) }, err == nil
		}
		limits := map[string][]int{}
		for name, admit := range map[string]func() (func(), bool){"before": old.Admit, "after": enter} {
			for _, phase := range []struct{ length, latency time.Duration }{
				{5 * time.Second, 10 * time.Millisecond}, {30 * time.Second, 100 * time.Millisecond},
			} {
				ran := 0
				for begin := time.Now(); time.Since(begin) < phase.length; {
					var running []func()
					for done, ok := admit(); ok; done, ok = admit() {
						running = append(running, done)
					}
					ran = len(running)
					time.Sleep(phase.latency)
					for _, done := range running {
						done()
					}
				}
				limits[name] = append(limits[name], ran)
			}
		}
		require.Equal(t, map[string][]int{"before": {200, 200}, "after": {200, 20}}, limits)
	})
}

func TestNetflixRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, err := gradientAfter()
		require.NoError(t, err)
		release := make(chan struct{})
		h := netflixAfter(limit, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		for range 20 {
			go serve(h)
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.NotEmpty(t, w.Header().Get("Retry-After"))
		close(release)
		synctest.Wait()
	})
}
