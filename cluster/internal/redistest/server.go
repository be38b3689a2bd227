package redistest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Missing is the message of a test that skips because there is no redis-server.
const Missing = "SKIPPED: no redis-server on this machine (apt-get install redis-server, brew install redis)"

// readyTimeout is how long a server may take to answer. It takes about 20 ms on an idle machine.
const readyTimeout = 20 * time.Second

// A Server is a redis-server on a port of the loopback interface, without persistence and with a separate folder.
// Methods may be called concurrently.
type Server struct {
	t    testing.TB // nil for the server of Main
	addr string
	dir  string
	args []string

	client *redis.Client

	mu    sync.Mutex
	cmd   *exec.Cmd // nil while killed
	ended <-chan struct{}
}

// Found reports whether there is a redis-server to start.
func Found() bool {
	_, err := exec.LookPath("redis-server")
	return err == nil
}

// Start starts a server with the given further arguments, such as "--maxmemory", "10mb", and stops it when the test ends.
// It skips the test if there is no redis-server.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if !Found() {
		t.Skip(Missing)
	}
	s, err := open(t, t.TempDir(), args)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(s.close)
	return s
}

// open starts a server on a free port.
func open(t testing.TB, dir string, args []string) (*Server, error) {
	var last error
	for range 5 { // another process may take the port before the server does
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		s := &Server{t: t, addr: "127.0.0.1:" + strconv.Itoa(port), dir: dir, args: args}
		s.client = redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, PoolSize: 2})
		if last = s.start(); last == nil {
			return s, nil
		}
		_ = s.client.Close()
	}
	return nil, last
}

// FreePort returns a port that is free now, for a server that is to return to it.
func FreePort(t testing.TB) string {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return strconv.Itoa(port)
}

// freePort returns a port that is free now, and whose port + 10000, the bus of a cluster, is free too. It lies below
// the ports of outgoing connections, so that a server can return to it.
func freePort() (int, error) {
	var last error
	for range 100 {
		port := 11000 + rand.IntN(11000)
		if last = canListen(port); last == nil {
			last = canListen(port + 10000)
		}
		if last == nil {
			return port, nil
		}
	}
	return 0, last
}

func canListen(port int) error {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return err
	}
	return l.Close()
}

// start starts the process and waits until it answers. The lock is held, or s is not shared yet.
func (s *Server) start() error {
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	args := append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", s.log(), "--save", "", "--appendonly", "no",
		"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
		"--hz", "100",
	}, s.args...)
	cmd := exec.CommandContext(context.Background(), "redis-server", args...)
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { // ends with the process; kill waits for it
		_ = cmd.Wait()
		close(ended)
	}()
	if err := s.awaitReady(cmd.Process.Pid, ended); err != nil {
		_ = cmd.Process.Kill()
		<-ended
		return err
	}
	s.cmd, s.ended = cmd, ended
	return nil
}

func (s *Server) log() string { return filepath.Join(s.dir, "redis.log") }

// awaitReady waits until the process with the given id answers on the port.
func (s *Server) awaitReady(pid int, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		info, err := s.client.Info(ctx, "server").Result()
		if err == nil {
			if strings.Contains(info, "process_id:"+strconv.Itoa(pid)+"\r\n") {
				return nil
			}
			return errors.New("another server has the port")
		}
		select {
		case <-ended:
			log, _ := os.ReadFile(s.log())
			return fmt.Errorf("redis-server ended: %s", log)
		case <-ctx.Done():
			return fmt.Errorf("redis-server does not answer: %w", err)
		case <-time.After(pause):
		}
	}
}

// Addr returns the address of the server, such as "127.0.0.1:16379". A Restart keeps it.
func (s *Server) Addr() string { return s.addr }

// Client returns a client to inspect and prepare the server. It does not retry, and belongs to the server.
func (s *Server) Client() *redis.Client { return s.client }

// Do runs one command, and fails the test if Redis answers with an error.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	v, err := s.client.Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatalf("redistest: %v: %v", args, err)
	}
	return v
}

// Kill kills the server and returns when it is gone, with all its data. A dead server stays dead.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
}

func (s *Server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // fails only if it is gone
	<-s.ended
	s.cmd = nil
}

// Restart kills the server if it runs, and starts it again at the same address, empty.
func (s *Server) Restart() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	if err := s.start(); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
}

// Pause stops the process without ending it, like a machine that swaps or a virtual machine that moves: connections
// stay open without an answer. It skips the test on systems without such a signal.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(pause)
}

// Resume ends a Pause.
func (s *Server) Resume() {
	s.t.Helper()
	s.signal(resume)
}

func (s *Server) signal(send func(*os.Process) error) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.t.Fatal("redistest: the server is dead")
	}
	check(s.t, send(s.cmd.Process))
}

// check skips the test where the system does not support the operation, and fails it at other errors.
func check(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		t.Skip("SKIPPED: this system cannot pause a process")
	case err != nil:
		t.Fatalf("redistest: %v", err)
	}
}

func (s *Server) close() {
	s.Kill()
	_ = s.client.Close()
}
