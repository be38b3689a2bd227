package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// A client sends the requests of one tenant at a steady rate, whatever the answers.
type client struct {
	url    string
	tenant string
	http   *http.Client
	period time.Duration
	stop   context.CancelFunc
	done   sync.WaitGroup

	refused chan struct{} // closed at the first refusal
	mu      sync.Mutex
	met     result // guarded by mu
}

// A result counts the answers to a tenant.
type result struct {
	offered, served, refused int
	said                     string // the RateLimit of the last answer
}

func (r result) since(before result) result {
	r.offered -= before.offered
	r.served -= before.served
	r.refused -= before.refused
	return r
}

// startClient begins to send rate requests per second over the given number of connections.
func startClient(addr, tenant string, rate float64, connections int) *client {
	ctx, stop := context.WithCancel(context.Background())
	c := &client{
		url:     "http://" + addr,
		tenant:  tenant,
		http:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}, Timeout: 10 * time.Second},
		period:  time.Duration(float64(time.Second) / rate),
		stop:    stop,
		refused: make(chan struct{}),
	}
	due := make(chan struct{})
	for range connections {
		c.done.Go(func() {
			for range due {
				c.send(ctx)
			}
		})
	}
	c.done.Go(func() {
		defer close(due)
		c.pace(ctx, due)
	})
	return c
}

// backlog is how many late requests are sent at once; earlier ones are never sent.
const backlog = 4

// pace sends the time of each request. A request is not sent if no connection is free, for example after a pause of the
// machine: a tenant must not be refused because this program slept.
func (c *client) pace(ctx context.Context, due chan<- struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := time.Now()
		if oldest := now.Add(-backlog * c.period); next.Before(oldest) {
			next = oldest
		}
		for ; !next.After(now); next = next.Add(c.period) {
			select {
			case due <- struct{}{}:
			default:
			}
		}
		timer.Reset(time.Until(next))
	}
}

func (c *client) send(ctx context.Context) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, http.NoBody)
	if err != nil {
		return
	}
	r.Header.Set("X-Tenant", c.tenant)
	res, err := c.http.Do(r)
	if ctx.Err() != nil {
		return // it is over
	}
	var status int
	var said string
	if err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		status, said = res.StatusCode, res.Header.Get("Ratelimit")
	}
	c.note(status, said)
}

func (c *client) note(status int, said string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.met.offered++
	c.met.said = said
	switch status {
	case http.StatusOK:
		c.met.served++
	case http.StatusTooManyRequests:
		if c.met.refused++; c.met.refused == 1 {
			close(c.refused)
		}
	}
}

func (c *client) result() result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.met
}

var errNeverRefused = errors.New("the flood is never refused: this machine is too slow to send so much")

func (c *client) waitForRefusal(atMost time.Duration) error {
	select {
	case <-c.refused:
		return nil
	case <-time.After(atMost):
		return errNeverRefused
	}
}

func (c *client) close() {
	c.stop()
	c.done.Wait()
	c.http.CloseIdleConnections()
}
