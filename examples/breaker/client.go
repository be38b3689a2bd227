package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

const (
	workers  = 20                     // number of calls that a client makes at once
	patience = 250 * time.Millisecond // a later answer is useless
)

// A side is one client with two servers, with or without breakers.
type side struct {
	breakers bool
	err      error

	servers [2]*server
	gate    *spillway.Gate
	http    *http.Client
	asked   [8]atomic.Int64 // by phase
	good    [8]atomic.Int64

	mu     sync.Mutex
	healed time.Time
	closed time.Time // when the breaker of the first server closed last
}

func (s *side) run(rate int, scale float64) error {
	for i := range s.servers {
		server, err := startServer()
		if err != nil {
			return err
		}
		defer server.close()
		s.servers[i] = server
	}
	if err := s.guard(); err != nil {
		return err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: workers}
	defer transport.CloseIdleConnections()
	s.http = &http.Client{Transport: transport}
	s.drive(rate, scale)
	return nil
}

// guard puts a breaker in front of each server. Without breakers the gate is empty and lets everything through.
func (s *side) guard() error {
	s.gate = spillway.New()
	if !s.breakers {
		return nil
	}
	registry, err := breaker.NewKeyed(&breaker.KeyedOptions{
		New: func(addr string) (breaker.Member, error) {
			return breaker.New(&breaker.Options{
				Window:   2 * time.Second,
				Buckets:  20,
				SlowCall: 100 * time.Millisecond,
				SlowRate: 0.2,
				OpenFor:  500 * time.Millisecond,
				MaxOpen:  time.Second,
				OnEvent:  func(e breaker.Event) { s.note(addr, e) },
			})
		},
	})
	if err != nil {
		return err
	}
	s.gate = spillway.New(registry)
	return nil
}

func (s *side) note(addr string, e breaker.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if addr == s.servers[0].addr && e.To == breaker.Closed {
		s.closed = e.Time
	}
}

// drive sends rate requests per second through all phases. Each waits for a worker and for an answer, but not for long.
func (s *side) drive(rate int, scale float64) {
	free := make(chan struct{}, workers)
	var wg sync.WaitGroup
	defer wg.Wait()
	next, began := 0, time.Now()
	end := time.Duration(0)
	for phase, p := range phases {
		s.servers[0].does.Store(int32(p.does))
		if phase > 0 && p.does == well {
			s.mu.Lock()
			s.healed = time.Now()
			s.mu.Unlock()
		}
		for end += time.Duration(float64(p.took) * scale); ; next++ {
			due := time.Duration(next) * time.Second / time.Duration(rate)
			if due >= end {
				break
			}
			time.Sleep(time.Until(began.Add(due)))
			first := next % 2
			wg.Go(func() { s.request(phase, first, free) })
		}
	}
}

// request asks the server whose turn it is. If the breaker refuses the call or the call fails, it asks the other
// server.
func (s *side) request(phase, first int, free chan struct{}) {
	s.asked[phase].Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case free <- struct{}{}:
		defer func() { <-free }()
	case <-ctx.Done():
		return // all workers are waiting for a server
	}
	for i := range s.servers {
		if s.call(ctx, s.servers[(first+i)%2].addr) == nil {
			s.good[phase].Add(1)
			return
		}
	}
}

var errStatus = errors.New("status 500")

// call asks one server, if its breaker lets it.
func (s *side) call(ctx context.Context, addr string) error {
	return spillway.Do(ctx, s.gate, spillway.Request{Key: addr}, func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr, nil)
		if err != nil {
			return err
		}
		resp, err := s.http.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode >= http.StatusInternalServerError {
			return errStatus
		}
		return nil
	})
}

// useful returns the share of requests that were answered successfully and in time.
func (s *side) useful() float64 {
	var good, asked int64
	for i := range phases {
		good += s.good[i].Load()
		asked += s.asked[i].Load()
	}
	return float64(good) / float64(max(asked, 1))
}

func (s *side) usefulIn(phase int) float64 {
	return float64(s.good[phase].Load()) / float64(max(s.asked[phase].Load(), 1))
}

// recovered returns how long after the end of the trouble the breaker closed, or 0 if it was not open then.
func (s *side) recovered() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.closed.Sub(s.healed), 0)
}
