package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

// watched returns a page of n gates of four policies with a full history, and what it does in a second while a browser looks:
// a sample and an answer.
func watched(tb testing.TB, n int) (second func()) {
	tb.Helper()
	sources := map[string]stats.Source{}
	for i := range n {
		sources[fmt.Sprint("gate", i)] = spillway.New(spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(1000, time.Second)})),
			spillway.Must(limiter.New(limiter.Concurrency{Limit: 1000})), spillway.Must(shedder.New(nil)), spillway.Must(breaker.New(nil)))
	}
	page := New(sources, nil)
	tb.Cleanup(func() { page.Close() })
	page.close()
	<-page.ended // the test says when a second is over
	now := time.Now()
	tick := func() {
		now = now.Add(every)
		page.sample(now)
	}
	for range keep {
		tick()
	}
	return func() {
		tick()
		r := httptest.NewRequest(http.MethodGet, fmt.Sprint("/snapshot?since=", page.history.seq-1), nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		require.Equal(tb, http.StatusOK, w.Code)
	}
}

// BenchmarkWatched is what a page costs in a second while a browser looks. 2 ms are 0.2 % of a core.
func BenchmarkWatched(b *testing.B) {
	for _, n := range []int{1, 12} {
		b.Run(fmt.Sprint(4*n, "-policies"), func(b *testing.B) {
			second := watched(b, n)
			b.ReportAllocs()
			for b.Loop() {
				second()
			}
		})
	}
}

func TestAWatchedPageCostsLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector costs more than the page")
	}
	second := watched(t, 1)
	took := make([]time.Duration, 300)
	for i := range took {
		begin := time.Now()
		second()
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	t.Logf("a second of a page that is watched costs %v", took[len(took)/2])
	require.Less(t, took[len(took)/2], 2*time.Millisecond, "0.2 %% of a core")
}
