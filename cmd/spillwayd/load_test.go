package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
)

// The real load: a pool of workers as a server of threads or processes has it, and clients that give up.
const (
	workers  = 4
	work     = 20 * time.Millisecond
	capacity = float64(workers) / 0.02 // requests per second
	overload = 5
	patient  = 500 * time.Millisecond
	settle   = 3 * time.Second // to learn the latency in an overload from the first request on
	measured = 3 * time.Second
	enough   = 0.8 // typical is 0.95; the load and the server share two CPUs with other tests
)

// pool is a server with workers that answers in order and does not notice clients that have left.
func pool() http.HandlerFunc {
	seats := make(chan struct{}, workers)
	return func(w http.ResponseWriter, _ *http.Request) {
		seats <- struct{}{}
		time.Sleep(work) // the work of a worker that waits for a database
		<-seats
		_, _ = io.WriteString(w, "ok")
	}
}

// goodput sends overload times the capacity to url, in even steps, and returns the share of the capacity that was answered in time
// in the measured time after settle.
func goodput(t *testing.T, url string, settle, measured time.Duration) float64 {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var (
		good  atomic.Int64
		calls sync.WaitGroup
	)
	began := time.Now()
	for sent := 0; ; {
		now := time.Since(began)
		if now > settle+measured {
			break
		}
		for ; float64(sent) < overload*capacity*now.Seconds(); sent++ {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patient)
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					return
				}
				res, err := client.Do(r)
				if err != nil {
					return
				}
				_, err = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if err == nil && res.StatusCode == http.StatusOK && now >= settle {
					good.Add(1)
				}
			})
		}
		time.Sleep(2 * time.Millisecond) // the pace of the load
	}
	calls.Wait()
	return float64(good.Load()) / (capacity * measured.Seconds())
}

// A pool without load reports keeps its goodput behind the proxy, without any setting. Bare, it answers too late.
func TestAPoolKeepsItsGoodput(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: a real load of ten seconds")
	}
	if race.Enabled {
		t.Skip("SKIPPED: under the race detector, load and server need more CPU than a busy machine has; run without -race")
	}
	bare := httptest.NewServer(pool())
	alone := goodput(t, bare.URL, time.Second, time.Second) // its queue is too long by then
	bare.CloseClientConnections()
	go bare.Close() // thousands of requests are still in its queue
	behind := 0.0
	for range 6 { // a machine that gives the test no CPU for a second can spoil some
		p := start(t, pool(), nil)
		behind = goodput(t, p.url, settle, measured)
		t.Logf("goodput at %d times the capacity: bare %.2f, behind spillwayd %.2f", overload, alone, behind)
		if behind > enough {
			break
		}
	}
	require.Less(t, alone, 0.3, "the load is an overload")
	require.Greater(t, behind, enough)
}
