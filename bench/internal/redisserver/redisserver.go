// Package redisserver runs a redis-server for a benchmark.
package redisserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Server is a Redis at an address that stays the same when it is started again.
type Server struct {
	Addr   string
	Client *redis.Client // without retries

	dir string
	cmd *exec.Cmd // nil if it is not ours, or dead
}

// Open starts a server on a free port of the loopback device, or uses the one at addr if addr is not empty.
func Open(ctx context.Context, addr string) (*Server, error) {
	s := &Server{Addr: addr}
	if addr == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		s.Addr = l.Addr().String()
		if err := l.Close(); err != nil {
			return nil, err
		}
		if s.dir, err = os.MkdirTemp("", "spillway-bench"); err != nil {
			return nil, err
		}
	}
	s.Client = redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	if err := s.Start(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Start starts the server if it is ours, and waits until it answers.
func (s *Server) Start(ctx context.Context) error {
	if s.dir != "" {
		_, port, _ := net.SplitHostPort(s.Addr)
		cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", s.dir)
		if err := cmd.Start(); err != nil {
			return err
		}
		s.cmd = cmd
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := s.Client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis at %s: %w", s.Addr, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Kill ends a server of ours at once.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Close ends a server of ours and closes the Client.
func (s *Server) Close() {
	_ = s.Client.Close()
	s.Kill()
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}
