package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// A node is a server and those who send it requests, who go away when it is killed.
type node struct {
	name   string
	demand float64 // requests per second

	process *process
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	admitted map[int64]int // by window
	met      load
}

// A load is what clients have met so far.
type load struct {
	sent, served, refused, errors int
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
				n.mu.Lock()
				n.admitted[t.Window] += t.Admitted
				n.mu.Unlock()
			}
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.running.Go(func() { n.send(ctx, "http://"+addr) })
	return nil
}

// kill kills the server while requests are under way. Its clients have nobody to ask then.
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
			default: // a machine too slow for the load: it is not offered
			}
		}
	}
	close(due)
	workers.Wait()
}

// ask sends one request. One that the end of its server or of the run cut off was answered by nobody, which is no fault of
// the limit.
func (n *node) ask(ctx context.Context, client *http.Client, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return
	}
	resp, err := client.Do(req)
	status := 0
	if err == nil {
		status = resp.StatusCode
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	} else if ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.met.sent++
	switch status {
	case http.StatusOK:
		n.met.served++
	case http.StatusTooManyRequests:
		n.met.refused++
	default:
		n.met.errors++
	}
}

func (n *node) load() load {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.met
}

// takeErrors returns how many requests failed since it was last asked.
func (n *node) takeErrors() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	failed := n.met.errors
	n.met.errors = 0
	return failed
}

// in returns what the server let through in a window.
func (n *node) in(window int64) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.admitted[window]
}
