package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is a Redis at an address that stays the same.
type server struct {
	addr   string
	client *redis.Client
	dir    string
	cmd    *exec.Cmd // nil if it is not ours, or dead
	ours   bool
}

// openServer starts a server on a free port, or uses the one at addr.
func openServer(ctx context.Context, addr string) (*server, error) {
	s := &server{addr: addr, ours: addr == ""}
	if s.ours {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		s.addr = l.Addr().String()
		if err := l.Close(); err != nil {
			return nil, err
		}
		if s.dir, err = os.MkdirTemp("", "spillway-bench"); err != nil {
			return nil, err
		}
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// start starts the server if it is ours, and waits until it answers.
func (s *server) start(ctx context.Context) error {
	if s.ours {
		_, port, _ := net.SplitHostPort(s.addr)
		cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", s.dir)
		if err := cmd.Start(); err != nil {
			return err
		}
		s.cmd = cmd
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		err := s.client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis at %s: %w", s.addr, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// kill ends a server of ours at once.
func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) close() {
	_ = s.client.Close()
	s.kill()
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// A redisCommand is the name of a command, as in INFO commandstats.
type redisCommand string

// A commandStat is the server's statistics of one command.
type commandStat struct{ calls, usec float64 }

func (c commandStat) add(other commandStat) commandStat {
	return commandStat{c.calls + other.calls, c.usec + other.usec}
}

func (s *server) commands(ctx context.Context) map[redisCommand]commandStat {
	stats := map[redisCommand]commandStat{}
	for line := range strings.Lines(s.client.Info(ctx, "commandstats").Val()) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if ok {
			stats[redisCommand(name)] = commandStat{number(rest, "calls="), number(rest, "usec=")}
		}
	}
	return stats
}

// cpu returns the µs that the main thread of the server has used.
func (s *server) cpu(ctx context.Context) float64 {
	info := s.client.Info(ctx, "cpu").Val()
	return 1e6 * (number(info, "used_cpu_sys_main_thread:") + number(info, "used_cpu_user_main_thread:"))
}

// version returns the version of the server.
func (s *server) version(ctx context.Context) string {
	_, rest, _ := strings.Cut(s.client.Info(ctx, "server").Val(), "redis_version:")
	v, _, _ := strings.Cut(rest, "\r")
	return v
}

// processed returns how many commands the server has run.
func (s *server) processed(ctx context.Context) float64 {
	return number(s.client.Info(ctx, "stats").Val(), "total_commands_processed:")
}

// number returns the number behind name, or 0.
func number(info, name string) float64 {
	_, rest, _ := strings.Cut(info, name)
	end := strings.IndexFunc(rest, func(c rune) bool { return (c < '0' || c > '9') && c != '.' })
	if end < 0 {
		end = len(rest)
	}
	v, _ := strconv.ParseFloat(rest[:end], 64)
	return v
}
