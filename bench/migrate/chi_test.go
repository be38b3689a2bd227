package migrate

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func throttleBefore(next http.Handler) http.Handler {
	return middleware.ThrottleBacklog(8, 32, time.Second)(next)
}

func throttleAfter(next http.Handler) (http.Handler, error) {
	queue, err := limiter.New(limiter.Queue{Limit: 8, MaxQueue: 32, MaxWait: time.Second})
	if err != nil {
		return nil, err
	}
	return httpgate.Handler(spillway.New(queue), nil)(next), nil
}

func TestChiThrottle(t *testing.T) {
	for name, want := range map[string]int{"before": http.StatusTooManyRequests, "after": http.StatusServiceUnavailable} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release })
				guarded := throttleBefore(slow)
				if name == "after" {
					var err error
					guarded, err = throttleAfter(slow)
					require.NoError(t, err)
				}
				answers := make(chan *httptest.ResponseRecorder, 41)
				for range 41 {
					go func() {
						w := httptest.NewRecorder()
						guarded.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
						answers <- w
					}()
				}
				synctest.Wait()
				require.Len(t, answers, 1, "8 run, 32 wait, 1 is refused")
				w := <-answers
				require.Equal(t, want, w.Code)
				require.Equal(t, name == "after", w.Header().Get("Retry-After") != "")
				close(release)
				synctest.Wait()
				require.Len(t, answers, 40)
				for range 40 {
					require.Equal(t, http.StatusOK, (<-answers).Code)
				}
			})
		})
	}
}
