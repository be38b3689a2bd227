package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// A node is a server and its clients, which stop when it is killed.
type node struct {
	name   string
	demand float64 // requests per second

	process *process
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	moments map[int64]moment // by window; guarded by mu
}

// A moment is the counts of one window.
type moment struct {
	sent, errors int // by the clients
	admitted     int // by the server
}

// start starts the server and its clients.
func (n *node) start(d *drama) error {
	p, addr, err := start("server", serverOrders{Redis: d.redis.addr, Name: d.version, Rate: d.rate})
	if err != nil {
		return err
	}
	n.process = p
	n.running.Go(func() {
		for p.lines.Scan() {
			var t tally
			if json.Unmarshal(p.lines.Bytes(), &t) == nil {
				n.count(t.Window, moment{admitted: t.Admitted})
			}
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.running.Go(func() { n.send(ctx, "http://"+addr) })
	return nil
}

// kill kills the server with requests in flight. Its clients then have no server.
func (n *node) kill() {
	_ = n.process.cmd.Process.Kill() // while clients are at it
	n.cancel()
	n.running.Wait()
	_ = n.process.cmd.Wait()
	n.process = nil
}

func (n *node) stop() {
	if n.process == nil {
		return
	}
	n.cancel()
	n.process.stop(&n.running)
	n.process = nil
}

// send sends requests at the demanded rate, over a few connections.
func (n *node) send(ctx context.Context, url string) {
	const connections = 16
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	due := make(chan struct{}, 256)
	var workers sync.WaitGroup
	for range connections {
		workers.Go(func() {
			for range due {
				n.ask(ctx, client, url)
			}
		})
	}
	beat := time.NewTicker(2 * time.Millisecond)
	defer beat.Stop()
	began, asked := time.Now(), 0
	for ctx.Err() == nil {
		<-beat.C
		for want := int(time.Since(began).Seconds() * n.demand); asked < want; asked++ {
			select {
			case due <- struct{}{}:
			default: // the machine is too slow for the load, so the request is not sent
			}
		}
	}
	close(due)
	workers.Wait()
}

// ask sends one request. A request that was cut off by the end of its server or of the run has no answer, and the limit
// is not at fault.
func (n *node) ask(ctx context.Context, client *http.Client, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return
	}
	n.count(windowOf(time.Now()), moment{sent: 1})
	resp, err := client.Do(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusTooManyRequests {
			return
		}
	} else if ctx.Err() != nil {
		return
	}
	n.count(windowOf(time.Now()), moment{errors: 1})
}

func (n *node) count(window int64, m moment) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.moments[window]
	n.moments[window] = moment{all.sent + m.sent, all.errors + m.errors, all.admitted + m.admitted}
}

// in returns the counts of a window.
func (n *node) in(window int64) moment {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.moments[window]
}
