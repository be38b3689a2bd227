//go:build unix

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
)

// A busyBackend counts the requests that run in it at once, for each tenant.
type busyBackend struct {
	takes time.Duration // of a request; 0 if it runs until its client leaves

	mu      sync.Mutex
	now     map[string]int
	most    map[string]int
	inAll   int
	mostAll int
}

func newBusyBackend(takes time.Duration) *busyBackend {
	return &busyBackend{takes: takes, now: map[string]int{}, most: map[string]int{}}
}

func (b *busyBackend) add(tenant string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now[tenant] += n
	b.inAll += n
	b.most[tenant], b.mostAll = max(b.most[tenant], b.now[tenant]), max(b.mostAll, b.inAll)
}

func (b *busyBackend) running() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inAll
}

func (b *busyBackend) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	tenant := r.Header.Get("X-Tenant")
	b.add(tenant, 1)
	defer b.add(tenant, -1)
	var ended <-chan time.Time
	if b.takes > 0 {
		ended = time.After(b.takes)
	}
	select {
	case <-ended:
	case <-r.Context().Done():
	}
}

// places returns a change that shares places through s.
func (s *redisServer) places(limit int, per, fallback string) func(*config.Config) {
	return func(c *config.Config) {
		s.sharing(2, fallback, config.Route{Concurrency: &config.Concurrency{Limit: limit, Per: per, Shared: true}})(c)
		c.Redis.Term = time.Second
		c.Shedder.Disabled = true // a busy machine is not the question
		c.Backend.Abandoned = time.Millisecond
	}
}

// Two processes never run more requests together than the limit, of each client or of all.
func TestProcessesSharePlaces(t *testing.T) {
	for _, per := range []string{config.PerAll, config.PerClient} {
		t.Run(per, func(t *testing.T) {
			s := startRedis(t)
			backend := newBusyBackend(15 * time.Millisecond) // long enough to overlap on a busy machine
			change := s.places(6, per, config.FallbackRefuse)
			processes := []*process{start(t, backend.ServeHTTP, change), start(t, backend.ServeHTTP, change)}
			var (
				workers          sync.WaitGroup
				answered, others atomic.Int64
			)
			for i := range 32 {
				p, tenant := processes[i%2], []string{"one", "two"}[i/2%2]
				workers.Go(func() {
					for range 60 {
						res, err := send(t.Context(), p, tenant)
						switch {
						case err == nil && res == http.StatusOK:
							answered.Add(1)
						case err != nil || res != http.StatusServiceUnavailable:
							others.Add(1)
						}
					}
				})
			}
			workers.Wait()
			require.Zero(t, others.Load(), "each request is answered, or refused")
			require.Greater(t, answered.Load(), int64(100))
			reached := max(backend.most["one"], backend.most["two"])
			if per == config.PerAll {
				reached = backend.mostAll
			}
			require.Equal(t, 6, reached, "the limit is reached, and never exceeded")
			for _, p := range processes {
				require.Eventually(t, func() bool { _, m := p.get(p.admin + "/metrics"); return gauge(m, "spillway_lock_returning") == 0 }, patience, 10*time.Millisecond)
				_, metrics := p.get(p.admin + "/metrics")
				require.Zero(t, gauge(metrics, "spillway_lock_in_flight"))
				require.Contains(t, metrics, `spillway_lock_requests_total{name="/items/{id}",policy="/items/%7Bid%7D.concurrency",result="refused"}`)
			}
		})
	}
}

// send returns the status of a request that ends with ctx.
func send(ctx context.Context, p *process, tenant string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/items/1", nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("X-Tenant", tenant)
	res, err := p.client.Do(r)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// gauge returns the value of a metric of the route in a text of metrics, or -1.
func gauge(metrics, name string) (v float64) {
	const labels = `{name="/items/{id}",policy="/items/%7Bid%7D.concurrency"} `
	_, rest, found := strings.Cut(metrics, name+labels)
	if !found {
		return -1
	}
	if _, err := fmt.Sscan(rest, &v); err != nil {
		return -1
	}
	return v
}

// A held is a number of requests that run until they are let go.
type held struct {
	letGo   context.CancelFunc
	refused atomic.Int64
	workers sync.WaitGroup
}

// hold sends n requests at once, and waits until each one runs or was refused.
func hold(t *testing.T, p *process, backend *busyBackend, n int) (h *held, ran int) {
	t.Helper()
	before := backend.running()
	h = new(held)
	var ctx context.Context
	ctx, h.letGo = context.WithCancel(t.Context())
	t.Cleanup(h.letGo)
	for range n {
		h.workers.Go(func() {
			if status, err := send(ctx, p, "one"); err == nil && status == http.StatusServiceUnavailable {
				h.refused.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool { return backend.running()-before+int(h.refused.Load()) == n }, patience, time.Millisecond)
	return h, backend.running() - before
}

// end lets the requests go, and waits until the backend has seen that.
func (h *held) end(t *testing.T, backend *busyBackend) {
	t.Helper()
	h.letGo()
	h.workers.Wait()
	require.Eventually(t, func() bool { return backend.running() == 0 }, patience, time.Millisecond)
}

func TestWithoutRedisTheFallbackDecidesAboutPlaces(t *testing.T) {
	for fallback, want := range map[string]int{config.FallbackDivide: 3, config.FallbackAllow: 10, config.FallbackRefuse: 0} {
		for _, how := range []string{"killed", "hanging", "never there"} {
			t.Run(fallback+" "+how, func(t *testing.T) {
				s := startRedis(t)
				if how == "never there" {
					s.kill()
				}
				backend, change := newBusyBackend(0), s.places(6, config.PerAll, fallback)
				p := start(t, backend.ServeHTTP, func(c *config.Config) {
					change(c)
					c.Redis.Timeout = 50 * time.Millisecond
				})
				switch how {
				case "killed":
					s.kill()
				case "hanging":
					s.pause()
				}
				began := time.Now()
				h, ran := hold(t, p, backend, 10)
				require.Equal(t, want, ran)
				require.Less(t, time.Since(began), patience/4, "no request waits for long")
				if how == "hanging" {
					h.end(t, backend)
					return
				}
				// Redis is back, and learns of the requests that run.
				require.True(t, s.start(t))
				require.Eventually(t, func() bool { return s.held(t) == want }, patience, 20*time.Millisecond)
				if fallback != config.FallbackAllow { // which decides until the breaker of the limit closes
					more, ran := hold(t, p, backend, 10)
					require.LessOrEqual(t, ran, 6-want)
					more.letGo()
				}
				h.end(t, backend)
				require.Eventually(t, func() bool {
					h, ran := hold(t, p, backend, 10)
					h.end(t, backend)
					return ran == 6
				}, patience, 50*time.Millisecond)
			})
		}
	}
}

// held returns how many places are taken, by what Redis knows.
func (s *redisServer) held(t *testing.T) int {
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	defer client.Close()
	n, err := client.ZCard(t.Context(), "shop:sem:{/items/%257Bid%257D.concurrency:}:holders").Result()
	require.NoError(t, err)
	return int(n)
}

// The places of a process that was killed are free after the term.
func TestAKilledProcessFreesItsPlaces(t *testing.T) {
	s := startRedis(t)
	backend, change := newBusyBackend(0), s.places(6, config.PerAll, config.FallbackRefuse)
	server := httptest.NewServer(backend)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "spillwayd.yaml")
	require.NoError(t, os.WriteFile(file, []byte("listen: [{address: '127.0.0.1:0'}]\nadmin: {address: 'off'}\n"+
		"backend: {urls: ["+server.URL+"]}\nredis: {url: 'redis://"+s.addr+"', prefix: shop, nodes: 2, timeout: 1s, term: 2s}\n"+
		"routes: [{match: '/items/{id}', concurrency: {limit: 6, shared: true}}]\n"), 0o600))
	cmd, address, _ := spawn(t, "-config "+file)
	other := start(t, backend.ServeHTTP, change)
	h, ran := hold(t, &process{url: "http://" + address, client: other.client}, backend, 10)
	require.Equal(t, 6, ran)
	_, ran = hold(t, other, backend, 3)
	require.Zero(t, ran)
	killed := time.Now() // before the kill, since a busy machine may take part of the term for what comes next
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	h.end(t, backend)
	require.Equal(t, 6, s.held(t))
	require.Eventually(t, func() bool {
		h, ran := hold(t, other, backend, 6)
		h.end(t, backend)
		return ran == 6
	}, patience, 20*time.Millisecond)
	t.Logf("free after %v", time.Since(killed))
	require.Greater(t, time.Since(killed), time.Second, "they were renewed after a third of the term")
}

// The number of places follows the file, and a process that ends gives its places back.
func TestSharedPlacesChange(t *testing.T) {
	s := startRedis(t)
	backend := newBusyBackend(0)
	server := httptest.NewServer(backend)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "spillwayd.yaml")
	write := func(limit int) {
		require.NoError(t, os.WriteFile(file+".new", fmt.Appendf(nil, "listen: [{address: '127.0.0.1:0'}]\nadmin: {address: '127.0.0.1:0'}\n"+
			"backend: {urls: [%s], abandoned: 1ms}\nshedder: {disabled: true}\nredis: {url: 'redis://%s', prefix: shop, nodes: 1, timeout: 1s}\n"+
			"routes: [{match: '/items/{id}', concurrency: {limit: %d, shared: true}}]\n", server.URL, s.addr, limit), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write(2)
	c, err := config.Load(file)
	require.NoError(t, err)
	p := startConfig(t, c, file)
	h, ran := hold(t, p, backend, 5)
	require.Equal(t, 2, ran)
	h.end(t, backend)
	write(4)
	require.Eventually(t, func() bool {
		h, ran := hold(t, p, backend, 5)
		h.end(t, backend)
		return ran == 4
	}, patience, 20*time.Millisecond)
}
