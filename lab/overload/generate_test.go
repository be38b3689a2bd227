package overload

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestScheduleIsPoisson(t *testing.T) {
	const rate, seconds = 200.0, 500
	times := schedule(rand.New(rand.NewPCG(1, 1)), rate, seconds*time.Second)
	require.True(t, slices.IsSorted(times))
	require.Less(t, times[len(times)-1], seconds*time.Second)

	perSecond := make([]float64, seconds)
	for _, at := range times {
		perSecond[int(at.Seconds())]++
	}
	var sum, squares float64
	for _, n := range perSecond {
		sum += n
		squares += n * n
	}
	mean := sum / seconds
	variance := squares/seconds - mean*mean
	require.InDelta(t, rate, mean, 0.02*rate)
	require.InDelta(t, rate, variance, 0.25*rate, "a Poisson process varies as much as it has on average")
}

func TestScheduleRepeats(t *testing.T) {
	draw := func(seed uint64) []time.Duration {
		return schedule(rand.New(rand.NewPCG(seed, 1)), 50, time.Second)
	}
	require.Equal(t, draw(7), draw(7))
	require.NotEqual(t, draw(7), draw(8))
}

// serve starts a server and a generator whose run began ago before now.
func serve(t *testing.T, h http.HandlerFunc, ago time.Duration) *generator {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	g := &generator{client: newClient(strings.TrimPrefix(srv.URL, "http://"), "/"), base: time.Now().Add(-ago), slo: defaultSLO, deadline: defaultDeadline}
	t.Cleanup(g.client.Close)
	return g
}

func TestLatencyCountsFromTheIntendedTime(t *testing.T) {
	g := serve(t, func(http.ResponseWriter, *http.Request) {}, 600*time.Millisecond)
	var counted tally
	samples := g.run(context.Background(), 100*time.Millisecond, []time.Duration{0, 450 * time.Millisecond}, &counted)
	g.wait()
	// The first should have been sent half a second ago: nobody waits for it any more, however quick the server is.
	require.Equal(t, answered, samples[0].kind)
	require.GreaterOrEqual(t, samples[0].lag, 500*time.Millisecond)
	require.GreaterOrEqual(t, samples[0].latency, 500*time.Millisecond)
	require.False(t, samples[0].good())
	require.True(t, samples[1].good())
	require.Equal(t, counts{sent: 2, ended: 2, good: 1}, counted.read())
}

func TestStalledServerDoesNotHoldBackTheOthers(t *testing.T) {
	const n = 20
	var arrived atomic.Int64
	all := make(chan struct{})
	g := serve(t, func(http.ResponseWriter, *http.Request) {
		if arrived.Add(1) == n {
			close(all)
		}
		<-all // nobody is answered before everybody has come
	}, 0)
	samples := g.run(context.Background(), 0, make([]time.Duration, n), &tally{})
	g.wait()
	for _, s := range samples {
		require.Equal(t, answered, s.kind)
	}
}

func TestClientGivesUpAtTheDeadline(t *testing.T) {
	release := make(chan struct{})
	g := serve(t, func(http.ResponseWriter, *http.Request) { <-release }, defaultDeadline-20*time.Millisecond)
	defer close(release)
	samples := g.run(context.Background(), 0, []time.Duration{0}, &tally{})
	g.wait()
	require.Equal(t, timeout, samples[0].kind)
	require.GreaterOrEqual(t, samples[0].latency, defaultDeadline)
	require.Empty(t, g.client.(*client).idle, "the connection is closed")
}

func TestGeneratorIsBounded(t *testing.T) {
	g := serve(t, func(http.ResponseWriter, *http.Request) {}, 0)
	g.open.Store(maxInFlight)
	samples := g.run(context.Background(), 0, []time.Duration{0}, &tally{})
	g.wait()
	require.Equal(t, unsent, samples[0].kind)
}

func TestGeneratorStopsWhenCancelled(t *testing.T) {
	g := serve(t, func(http.ResponseWriter, *http.Request) {}, 0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.Empty(t, g.run(ctx, 0, []time.Duration{time.Hour}, &tally{}))
}

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want kind
	}{
		{statusError(200), answered},
		{statusError(204), answered},
		{statusError(503), refused},
		{statusError(429), refused},
		{statusError(500), failed},
		{statusError(404), failed},
		{os.ErrDeadlineExceeded, timeout},
		{context.DeadlineExceeded, timeout},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, timeout},
		{errors.New("connection refused"), failed},
	} {
		require.Equal(t, c.want, kindOf(c.err), "%v", c.err)
	}
}

func TestClientKeepsConnections(t *testing.T) {
	var opened atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "busy", http.StatusServiceUnavailable)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	c := newClient(srv.Listener.Addr().String(), "/")
	defer c.Close()
	for range 5 {
		status, err := c.do(time.Now().Add(10 * time.Second))
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, status)
	}
	require.Equal(t, int64(1), opened.Load())

	srv.CloseClientConnections()
	status, err := c.do(time.Now().Add(10 * time.Second))
	require.NoError(t, err, "a kept connection that the server has closed is replaced")
	require.Equal(t, http.StatusServiceUnavailable, status)
}

func TestClientObeysConnectionClose(t *testing.T) {
	g := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }, 0)
	_, err := g.client.(*client).do(time.Now().Add(10 * time.Second))
	require.NoError(t, err)
	require.Empty(t, g.client.(*client).idle)
}

func TestClosedLoop(t *testing.T) {
	slots := make(chan struct{}, 1)
	g := serve(t, func(http.ResponseWriter, *http.Request) {
		slots <- struct{}{}
		<-time.After(10 * time.Millisecond)
		<-slots
	}, 0)
	rate := ClosedLoop(context.Background(), g.client.Do, 4, 50*time.Millisecond, 500*time.Millisecond)
	require.Greater(t, rate, 10.0)
	require.LessOrEqual(t, rate, 104.0, "one at a time for 10 ms each")
}
