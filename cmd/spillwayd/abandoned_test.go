package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
)

// leave sends a request and cancels it once the backend has it, and for a backend that flushes its header, once that is here.
func (p *process) leave(entered <-chan struct{}) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	require.NoError(p.t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if res, err := p.client.Do(r); err == nil {
			cancel()
			res.Body.Close()
		}
	}()
	<-entered
	cancel()
	<-ended
}

func (p *process) eventually(metric string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		_, metrics := p.get(p.admin + "/metrics")
		return strings.Contains(metrics, metric)
	}, patience, 10*time.Millisecond, metric)
}

// The backend still works on a request whose client has left, so the request keeps its place, and its answer counts.
func TestAbandonedRequestsCountUntilTheyAreAnswered(t *testing.T) {
	entered, held := make(chan struct{}), make(chan struct{})
	p := start(t, func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-held
	}, nil)
	p.leave(entered)
	time.Sleep(50 * time.Millisecond) // the proxy would notice now that the client has left
	p.eventually(`spillway_gate_in_flight{name="default"} 1`)
	close(held)
	p.eventually(`spillway_gate_outcomes_total{name="default",outcome="success"} 1`)
	p.eventually(`spillway_gate_in_flight{name="default"} 0`)
}

func TestAbandonedRequestsEnd(t *testing.T) {
	for _, begins := range []bool{false, true} {
		entered, left := make(chan struct{}), make(chan struct{})
		p := start(t, func(w http.ResponseWriter, r *http.Request) {
			if begins {
				w.(http.Flusher).Flush() // the client has the header
			}
			entered <- struct{}{}
			<-r.Context().Done()
			close(left)
		}, func(c *config.Config) {
			if !begins {
				c.Backend.Abandoned = 20 * time.Millisecond
			}
		})
		p.leave(entered)
		select {
		case <-left:
		case <-time.After(patience / 4): // less than the default of backend.abandoned
			require.Fail(t, "the backend still has the request", "begins: %v", begins)
		}
	}
}
