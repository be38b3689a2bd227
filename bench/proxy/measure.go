package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lab "github.com/spillway-go/spillway/lab/overload"
)

const (
	connections = 32
	rounds      = 20
	warmUp      = 5000 // requests of each proxy that do not count: its start, its connections and its first collections of garbage
)

// measureCost fills in the figures of the cost.
func (r *report) measureCost(daemon, dir string, requests int) error {
	backend, err := spawnSelf("fast")
	if err != nil {
		return err
	}
	defer backend.end()
	file := filepath.Join(dir, "refuse.yaml")
	text := fmt.Sprintf("listen: [{address: '127.0.0.1:0'}]\nadmin: {address: 'off'}\nbackend: {urls: [%s]}\n"+
		"routes: [{match: /, name: all, rate: {rate: 1/h, per: all}}]\n", backend.url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	plain, err := spawnSelf("plain", backend.url)
	if err != nil {
		return err
	}
	defer plain.end()
	admitting, err := spawn(daemon, "-to", backend.url, "-listen", "127.0.0.1:0", "-admin", "off")
	if err != nil {
		return err
	}
	defer admitting.end()
	refusing, err := spawn(daemon, "-config", file)
	if err != nil {
		return err
	}
	defer refusing.end()
	var (
		proxies = [...]*child{plain, admitting, refusing}
		cost    [len(proxies)][]float64
		ratio   [len(proxies)][]float64 // to the plain proxy of the same round
	)
	for round := range rounds + 1 { // in turns, because the machine is not equally fast all the time
		n := requests / rounds
		if round == 0 {
			n = warmUp
		}
		for i, proxy := range proxies {
			used, err := proxy.costOf(n)
			if err != nil {
				return err
			}
			if round > 0 {
				cost[i] = append(cost[i], used)
				ratio[i] = append(ratio[i], used/cost[0][round-1])
			}
		}
	}
	r.PlainCPU, r.ProxyCPU, r.RefusalCPU = median(cost[0]), median(cost[1]), median(cost[2])
	r.ProxyRatio, r.RefusalRatio = median(ratio[1]), median(ratio[2])/median(ratio[1])
	return nil
}

// costOf sends n requests to the proxy c and returns the CPU time of a request in µs.
func (c *child) costOf(n int) (float64, error) {
	before, err := c.cpu()
	if err != nil {
		return 0, err
	}
	if failed := closedLoop(c.url, n); failed > 0 {
		return 0, fmt.Errorf("%d of %d requests got no answer", failed, n)
	}
	after, err := c.cpu()
	return float64((after - before).Nanoseconds()) / 1000 / float64(n), err
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// closedLoop sends requests over all connections and returns how many got no answer.
func closedLoop(url string, requests int) (failed int) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	var (
		calls sync.WaitGroup
		mu    sync.Mutex
	)
	for range connections {
		calls.Go(func() {
			for range requests / connections {
				if _, err := get(context.Background(), client, url); err != nil {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	calls.Wait()
	return failed
}

func get(ctx context.Context, client *http.Client, url string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

const (
	patience = 500 * time.Millisecond
	settle   = 3 * time.Second
)

// A cell is one guard in front of one backend under one load.
type cell struct {
	guard, backend string
	load           float64
	event          string // at half of the measured time: "", halved or killed
	calm, measured time.Duration
}

// measure plays the cell.
func (c *cell) measure(daemon, dir string, capacity float64) (result, error) {
	out := result{Guard: c.guard, Backend: c.backend, Load: c.load, Event: c.event}
	b, err := startBackend(c.backend, dir)
	if err != nil {
		return out, err
	}
	defer b.end()
	guard, err := startGuard(c.guard, daemon, dir, b.url)
	if err != nil {
		return out, err
	}
	defer func() { guard.end() }()
	var url atomic.Pointer[string]
	url.Store(&b.url)
	if guard != nil {
		url.Store(&guard.url)
	}
	half := settle + c.measured/2
	from, until := settle, settle+c.measured // what counts
	var happened atomic.Int64
	happen := func() error { return nil }
	switch c.event {
	case "halved":
		happen = b.halve
		from = half + time.Second
		capacity /= 2
	case "killed":
		address := strings.TrimPrefix(guard.url, "http://")
		from = half
		happen = func() error {
			guard.end()
			again, err := spawn(daemon, "-to", b.url, "-listen", address, "-admin", "off")
			if err == nil {
				guard = again
			}
			return err
		}
	}
	flood(&url, capacity/2, c.calm, time.Now())
	began := time.Now()
	fault := make(chan error, 1)
	go func() {
		time.Sleep(half) // the time of the event
		err := happen()
		happened.Store(int64(time.Since(began)))
		fault <- err
	}()
	answers := flood(&url, c.load*capacityOf(c, capacity), settle+c.measured, began)
	if err := <-fault; err != nil {
		return out, err
	}
	if c.event == "killed" {
		from = time.Duration(happened.Load()) + time.Second
	}
	out.judge(answers, from, until, capacity)
	return out, nil
}

// judge fills in the figures of the requests sent between from and until.
func (r *result) judge(answers []answer, from, until time.Duration, capacity float64) {
	var took []time.Duration
	for _, a := range answers {
		if a.sent >= from && a.sent < until {
			took = append(took, a.took)
		}
	}
	r.Goodput = float64(len(took)) / (capacity * (until - from).Seconds())
	if len(took) > 0 {
		slices.Sort(took)
		r.P99 = float64(took[len(took)*99/100].Microseconds()) / 1000
	}
}

// capacityOf returns the capacity that the load is a multiple of: the one before the event.
func capacityOf(c *cell, capacity float64) float64 {
	if c.event == "halved" {
		return 2 * capacity
	}
	return capacity
}

// An answer is one that came in time.
type answer struct{ sent, took time.Duration }

// flood sends rate requests per second in even steps, and returns the useful answers.
func flood(url *atomic.Pointer[string], rate float64, d time.Duration, began time.Time) []answer {
	var (
		calls   sync.WaitGroup
		mu      sync.Mutex
		answers []answer
	)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer client.CloseIdleConnections()
	for sent := 0; time.Since(began) < d; {
		now := time.Since(began)
		for ; float64(sent) < rate*now.Seconds(); sent++ {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				at := time.Now()
				status, err := get(ctx, client, *url.Load())
				if err == nil && status == http.StatusOK {
					mu.Lock()
					defer mu.Unlock()
					answers = append(answers, answer{now, time.Since(at)})
				}
			})
		}
		time.Sleep(2 * time.Millisecond)
	}
	calls.Wait()
	return answers
}

// capacityOfBackend measures how many requests per second a backend answers to a few clients that wait for each other.
func capacityOfBackend(name, dir string) (float64, error) {
	b, err := startBackend(name, dir)
	if err != nil {
		return 0, err
	}
	defer b.end()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer client.CloseIdleConnections()
	return lab.ClosedLoop(context.Background(), func(by time.Time) error {
		ctx, cancel := context.WithDeadline(context.Background(), by)
		defer cancel()
		status, err := get(ctx, client, b.url)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
		return err
	}, 8*workers, time.Second, 3*time.Second), nil
}
