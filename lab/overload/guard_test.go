package overload

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFixedRefusesBeyondItsLimit(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	h, stats, err := Fixed(2).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside <- struct{}{}
		<-release
	}))
	require.NoError(t, err)
	done := make(chan int)
	ask := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Code
	}
	for range 2 {
		go func() { done <- ask() }()
		<-inside
	}
	require.Equal(t, http.StatusServiceUnavailable, ask())
	v := stats()
	require.InDelta(t, 2, *v.InFlight, 0)
	require.Equal(t, int64(2), *v.Admitted)
	require.Equal(t, int64(1), *v.Refused)
	close(release)
	require.Equal(t, http.StatusOK, <-done)
	require.Equal(t, http.StatusOK, <-done)
	require.Zero(t, *stats().InFlight)
}

func TestFixedNeedsALimit(t *testing.T) {
	_, _, err := Fixed(0).Wrap(nil)
	require.ErrorContains(t, err, "limit must be at least 1, got 0")
}

func TestWorksAnswer(t *testing.T) {
	b := &Burner{perMilli: 1000}
	for _, w := range Works() {
		s := &Service{burner: b, do: w.New(b)}
		server, err := httpTransport{&Config{}}.NewServer("none", s)
		require.NoError(t, err)
		rec := httptest.NewRecorder()
		server.(http.Handler).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, "ok\n", rec.Body.String(), w.Name)
		require.Equal(t, []int64{1, 1, 0}, []int64{s.arrived.Load(), s.started.Load(), s.running.Load()}, w.Name)
		require.NotEmpty(t, w.About)
	}
}

func TestMixedIsNineToOne(t *testing.T) {
	b := &Burner{perMilli: 10} // one iteration a slice
	long := 0
	do := mixed(0, 50*time.Millisecond)(b)
	for range 1000 {
		do()
		if b.sink.Load() != spin(0) {
			long++
		}
	}
	require.InDelta(t, 100, long, 20)
}

func TestCalibrationCountsCPU(t *testing.T) {
	perMilli := calibrate()
	require.Greater(t, perMilli, 1e4, "iterations in a millisecond")
	require.Less(t, perMilli, 1e7)
}

func TestSchedWaits(t *testing.T) {
	w := newSchedWaits()
	done := make(chan struct{})
	for range 100 {
		go func() { done <- struct{}{} }()
	}
	for range 100 {
		<-done
	}
	require.GreaterOrEqual(t, w.p99(), 0.0)
}
