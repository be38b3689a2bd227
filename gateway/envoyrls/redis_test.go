package envoyrls_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A redisServer is a real redis-server, without persistence.
type redisServer struct {
	addr string
	kill func()
	// pause makes it hang.
	pause func()
}

// startRedis starts a server that ends with the test.
func startRedis(t testing.TB) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("SKIPPED: no redis-server on this machine (apt-get install redis-server, brew install redis)")
	}
	for range 5 { // another process may take the port before the server does
		s := &redisServer{addr: fmt.Sprintf("127.0.0.1:%d", 22000+rand.IntN(9000))}
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

func (s *redisServer) start(t testing.TB) bool {
	t.Helper()
	_, port, err := net.SplitHostPort(s.addr)
	require.NoError(t, err)
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "no")
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	s.kill = func() { _ = cmd.Process.Kill(); <-ended }
	s.pause = func() { require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP)) }
	t.Cleanup(s.kill)
	client := s.client(t)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if client.Ping(t.Context()).Err() == nil {
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

func (s *redisServer) client(t testing.TB) redis.UniversalClient {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
