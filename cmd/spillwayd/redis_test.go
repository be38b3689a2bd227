package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
	"github.com/spillway-go/spillway/limiter"
)

// A redisServer is a real redis-server, without persistence.
type redisServer struct {
	addr  string
	args  []string
	kill  func()
	pause func() // makes it hang
}

// startRedis starts a server that ends with the test.
func startRedis(t *testing.T, args ...string) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("SKIPPED: no redis-server on this machine (apt-get install redis-server, brew install redis)")
	}
	for range 5 { // another process may take the port before the server does
		s := &redisServer{addr: fmt.Sprintf("127.0.0.1:%d", 22000+rand.IntN(9000)), args: args}
		if l, err := net.Listen("tcp", s.addr); err != nil || l.Close() != nil {
			continue
		}
		if s.start(t) {
			return s
		}
	}
	require.FailNow(t, "redis-server does not start")
	return nil
}

func (s *redisServer) start(t *testing.T) bool {
	t.Helper()
	_, port, err := net.SplitHostPort(s.addr)
	require.NoError(t, err)
	args := append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "no"}, s.args...)
	cmd := exec.Command("redis-server", args...)
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	s.kill = func() { _ = cmd.Process.Kill(); <-ended }
	s.pause = func() { require.NoError(t, exec.Command("kill", "-STOP", strconv.Itoa(cmd.Process.Pid)).Run()) }
	t.Cleanup(s.kill)
	client := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err := client.Ping(t.Context()).Err(); err == nil || redis.HasErrorPrefix(err, "NOAUTH") {
			return true
		}
		select {
		case <-ended:
			return false
		default:
		}
	}
	return false
}

// sharing returns a change that shares limits through s.
func (s *redisServer) sharing(nodes int, fallback string, r config.Route) func(*config.Config) {
	return func(c *config.Config) {
		c.Redis = &config.Redis{URL: "redis://" + s.addr, Prefix: "shop", Nodes: nodes, Timeout: time.Second, Fallback: fallback}
		c.Client = config.Client{Key: "header", Header: "X-Tenant", RateLimitHeaders: true}
		r.Match, r.Name = "/items/{id}", "/items/{id}"
		c.Routes = []config.Route{r}
	}
}

// admitted sends n requests of a tenant to the processes in turns, and returns how many they admit.
func admitted(n int, tenant string, processes ...*process) (ok int) {
	for i := range n {
		p := processes[i%len(processes)]
		res, _ := p.get(p.url+"/items/1", "X-Tenant", tenant)
		switch res.StatusCode {
		case http.StatusOK:
			ok++
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		default:
			require.Fail(p.t, res.Status)
		}
	}
	return ok
}

// Several processes admit as many requests together as the limit of a route allows.
func TestProcessesShareLimits(t *testing.T) {
	s := startRedis(t)
	change := s.sharing(2, config.FallbackRefuse, config.Route{
		Rate: &config.Rate{Rate: limiter.Per(1, time.Hour), Burst: 30, Per: config.PerClient, Shared: true},
		Quotas: []config.Quota{
			{Limit: 20, Every: "month", Zone: "Europe/Berlin", Per: config.PerClient, Shared: true},
			{Limit: 45, Every: "month", Zone: "UTC", Per: config.PerAll, Shared: true},
		},
	})
	a, b := start(t, echo, change), start(t, echo, change)
	res, _ := a.get(a.url+"/items/1", "X-Tenant", "one")
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Regexp(t, `^"/items/\{id\}\.rate";q=30;w=\d+, "/items/\{id\}\.client\.month";q=20;w=\d+$`, res.Header.Get("Ratelimit-Policy"))
	require.Contains(t, res.Header.Get("Ratelimit"), `"/items/{id}.client.month";r=19;t=`)
	// Each process may hold a token or two that it has fetched and not spent.
	one := 1 + admitted(60, "one", a, b)
	require.LessOrEqual(t, one, 20)
	require.GreaterOrEqual(t, one, 16)
	two := admitted(60, "two", a, b)
	require.LessOrEqual(t, two, 20, "each client has its own")
	require.GreaterOrEqual(t, two, 16)
	three := admitted(60, "three", a, b)
	require.LessOrEqual(t, one+two+three, 45, "and all have one together")
	require.GreaterOrEqual(t, one+two+three, 35)
	res, _ = a.get(a.url+"/items/1", "X-Tenant", "one")
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
	_, metrics := a.get(a.admin + "/metrics")
	require.Contains(t, metrics, `spillway_exact_requests_total{name="/items/{id}",policy="/items/%7Bid%7D.client.month",result="refused"}`,
		"the name in Redis has no braces")
}

// A rate that is high enough is leased: no request waits for Redis, and all processes together keep the rate.
func TestProcessesShareARate(t *testing.T) {
	s := startRedis(t)
	change := s.sharing(2, config.FallbackDivide, config.Route{
		Rate: &config.Rate{Rate: limiter.Per(200, time.Second), Burst: 40, Per: config.PerAll, Shared: true},
	})
	a, b := start(t, echo, change), start(t, echo, change)
	began, n := time.Now(), 0
	for time.Since(began) < 2*time.Second { // real time: Redis has a clock of its own
		n += admitted(20, "one", a, b)
	}
	took := time.Since(began).Seconds()
	require.LessOrEqual(t, float64(n), 200*took+40+3)
	require.GreaterOrEqual(t, float64(n), 0.5*200*took)
	_, metrics := a.get(a.admin + "/metrics")
	require.Contains(t, metrics, `spillway_lease_leased{name="/items/{id}",policy="/items/{id}.rate"} 1`)
}

// Tokens that a process has fetched and not spent are for the others when it ends.
func TestTokensAreGivenBackAtTheEnd(t *testing.T) {
	s := startRedis(t)
	change := s.sharing(2, config.FallbackRefuse, config.Route{
		Quotas: []config.Quota{{Limit: 100, Every: "month", Zone: "UTC", Per: config.PerAll, Shared: true}},
	})
	a, b := start(t, echo, change), start(t, echo, change)
	n := admitted(50, "one", a)
	require.Equal(t, 50, n)
	a.stop()
	require.NoError(t, <-a.ended)
	a.ended <- nil // for the cleanup
	require.Equal(t, 50, admitted(60, "one", b))
}

func TestWithoutRedisTheFallbackDecides(t *testing.T) {
	for fallback, want := range map[string]int{config.FallbackDivide: 10, config.FallbackAllow: 30, config.FallbackRefuse: 0} {
		for _, how := range []string{"killed", "hanging", "never there"} {
			if fallback != config.FallbackDivide && how != "killed" {
				continue
			}
			t.Run(fallback+" "+how, func(t *testing.T) {
				s := startRedis(t)
				if how == "never there" {
					s.kill()
				}
				change := s.sharing(2, fallback, config.Route{
					Quotas: []config.Quota{{Limit: 20, Every: "month", Zone: "UTC", Per: config.PerClient, Shared: true}},
				})
				p := start(t, echo, func(c *config.Config) {
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
				require.Equal(t, want, admitted(30, "one", p))
				require.Less(t, time.Since(began), patience/4, "no request waits for long")
				if fallback == config.FallbackRefuse {
					res, _ := p.get(p.url+"/items/1", "X-Tenant", "one")
					require.Equal(t, http.StatusServiceUnavailable, res.StatusCode, "the client is not to blame")
				}
				require.Eventually(t, func() bool {
					admitted(1, "one", p) // the breaker opens after a few calls
					return strings.Count(p.log.String(), "Redis does not answer") == 1
				}, patience, time.Millisecond)
				if how == "hanging" {
					return
				}
				require.True(t, s.start(t))
				require.Eventually(t, func() bool { return admitted(1, "two", p) == 1 && admitted(1, "three", p) == 1 }, patience, 50*time.Millisecond)
			})
		}
	}
}

func TestRedisWantsAPassword(t *testing.T) {
	s := startRedis(t, "--requirepass", "secret")
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("wrong\n"), 0o600))
	change := s.sharing(1, config.FallbackRefuse, config.Route{
		Quotas: []config.Quota{{Limit: 20, Every: "month", Zone: "UTC", Per: config.PerClient, Shared: true}},
	})
	p := start(t, echo, func(c *config.Config) {
		change(c)
		c.Redis.PasswordFile = file
	})
	require.Zero(t, admitted(3, "one", p))
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	require.Eventually(t, func() bool { return admitted(1, "one", p) == 1 }, patience, 50*time.Millisecond, "it is read for each connection")
	require.NotContains(t, p.log.String(), "secret")
}

// The numbers of shared limits follow the file.
func TestSharedNumbersChange(t *testing.T) {
	s := startRedis(t)
	file := filepath.Join(t.TempDir(), "spillwayd.yaml")
	var text string
	write := func(limit int) {
		require.NoError(t, os.WriteFile(file+".new", fmt.Appendf(nil, text, limit), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	backend := start(t, echo, nil)
	text = "listen: [{address: '127.0.0.1:0'}]\nadmin: {address: '127.0.0.1:0'}\nbackend: {urls: [" + backend.url + "]}\n" +
		"redis: {url: 'redis://" + s.addr + "', nodes: 1, timeout: 1s}\n" +
		"routes: [{match: /, name: all, rate: {rate: 1/h, burst: 100, per: all, shared: true}, quotas: [{limit: %d, every: month, per: all, shared: true}]}]\n"
	write(3)
	c, err := config.Load(file)
	require.NoError(t, err)
	p := startConfig(t, c, file)
	require.Equal(t, 3, admitted(5, "one", p))
	write(7)
	require.Eventually(t, func() bool { return admitted(1, "one", p) == 1 }, patience, 50*time.Millisecond)
	require.Equal(t, 3, admitted(5, "one", p))
}
