package main

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const useful = time.Second // a client leaves after that

// A class of requests is sent at a steady rate, whatever the answers.
type class struct {
	rate float64 // requests per second
	send func(ctx context.Context) (status int)
	met  tally
}

// A tally counts answers by status, and keeps the latencies of the good ones. It is safe for concurrent use.
type tally struct {
	mu        sync.Mutex
	sent      int
	byStatus  map[int]int
	latencies []time.Duration
	late      []time.Duration // how long after its time each request was sent
}

func (t *tally) add(status int, took, late time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byStatus == nil {
		t.byStatus = make(map[int]int)
	}
	t.sent++
	t.late = append(t.late, late)
	t.byStatus[status]++
	if status == http.StatusOK {
		t.latencies = append(t.latencies, took)
	}
}

// share returns the share of the requests with a status. It is 0 if there were no requests.
func (t *tally) share(status int) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return float64(t.byStatus[status]) / float64(max(t.sent, 1))
}

func (t *tally) count(status int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byStatus[status]
}

// p99 returns the 99th percentile of the latencies of the good answers of several classes, and of how late they were sent.
func p99(classes ...*class) (latency, late time.Duration) {
	var latencies, lates []time.Duration
	for _, c := range classes {
		c.met.mu.Lock()
		latencies, lates = append(latencies, c.met.latencies...), append(lates, c.met.late...)
		c.met.mu.Unlock()
	}
	return quantile99(latencies), quantile99(lates)
}

func quantile99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// flood sends the requests of all classes for a time, and waits for their answers. It returns how late they were sent.
func flood(ctx context.Context, d time.Duration, classes ...*class) (late time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d+useful)
	defer cancel()
	var wg sync.WaitGroup
	for _, c := range classes {
		wg.Go(func() {
			began := time.Now()
			for n := 0; ; n++ {
				due := time.Duration(float64(n) / c.rate * float64(time.Second))
				if due >= d {
					return
				}
				time.Sleep(time.Until(began.Add(due))) // a late one is sent at once, so the rate holds
				late := time.Since(began.Add(due))
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(ctx, useful)
					defer cancel()
					sent := time.Now()
					c.met.add(c.send(ctx), time.Since(sent), late)
				})
			}
		})
	}
	wg.Wait()
	_, late = p99(classes...)
	return late
}

// A caller sends requests to a shop.
type caller struct {
	shop   *shop
	client *http.Client
	conn   *grpc.ClientConn
}

func newCaller(s *shop) (*caller, error) {
	conn, err := grpc.NewClient(s.grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &caller{s, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}, conn}, nil
}

func (c *caller) close() {
	c.client.CloseIdleConnections()
	_ = c.conn.Close()
}

// request returns a function that sends a request of a tenant, and returns its status, or 0 if there was no answer.
func (c *caller) request(tenant, method, path string) func(ctx context.Context) int {
	return func(ctx context.Context) int {
		status, _, _ := c.ask(ctx, tenant, method, path)
		return status
	}
}

func (c *caller) ask(ctx context.Context, tenant, method, path string, fields ...string) (status int, header http.Header, body string) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.shop.httpAddr+path, http.NoBody)
	if err != nil {
		return 0, nil, ""
	}
	req.Header.Set("X-Tenant", tenant)
	for i := 0; i+1 < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	res, err := c.client.Do(req)
	if err != nil {
		return 0, nil, ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, ""
	}
	return res.StatusCode, res.Header, string(text)
}

// call calls the gRPC method as a tenant. Its status is that of HTTP: 200 or 503.
func (c *caller) call(tenant string) func(ctx context.Context) int {
	return func(ctx context.Context) int {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-tenant", tenant)
		if err := c.conn.Invoke(ctx, itemMethod, wrapperspb.String("7"), new(wrapperspb.StringValue)); err != nil {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	}
}
