package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisServer is a redis-server of our own, at an address that stays the same when it is restarted.
type redisServer struct {
	addr   string
	dir    string
	client *redis.Client
	cmd    *exec.Cmd // nil while it is down
}

func startRedis(ctx context.Context) (*redisServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &redisServer{addr: l.Addr().String()}
	if err := l.Close(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "spillway-soak"); err != nil {
		return nil, err
	}
	quiet()
	s.client = redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// start starts the server and waits until it answers.
func (s *redisServer) start(ctx context.Context) error {
	_, port, _ := net.SplitHostPort(s.addr)
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", s.dir)
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for {
		err := s.client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		if !pause(ctx, 10*time.Millisecond) {
			return fmt.Errorf("redis-server at %s: %w", s.addr, err)
		}
	}
}

// kill ends the server at once.
func (s *redisServer) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *redisServer) close() {
	_ = s.client.Close()
	s.kill()
	_ = os.RemoveAll(s.dir)
}

// quiet turns off the client's log, since this program makes Redis unreachable on purpose. The logger may be set only
// once, while no client runs.
var quiet = sync.OnceFunc(func() { redis.SetLogger(silent{}) })

// silent logs nothing.
type silent struct{}

// Printf does nothing.
func (silent) Printf(context.Context, string, ...any) {}

// pause waits for d, and reports whether ctx is still active.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
