//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// asSpillwayd is the variable that makes the test program spillwayd itself, with its arguments.
const asSpillwayd = "SPILLWAYD_TEST_ARGS"

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	if args := os.Getenv(asSpillwayd); args != "" {
		os.Exit(run(strings.Fields(args), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// spawn starts spillwayd as a process of its own, and returns its address and its log.
func spawn(t *testing.T, args string) (*exec.Cmd, string, *lockedBuffer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asSpillwayd+"="+args, "STATE_DIRECTORY="+t.TempDir())
	text, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		if _, address, found := strings.Cut(lines.Text(), `"address":"`); found {
			address, _, _ = strings.Cut(address, `"`)
			log := &lockedBuffer{mu: make(chan struct{}, 1)}
			go func() { _, _ = io.Copy(log, text) }()
			return cmd, address, log
		}
	}
	require.Fail(t, "spillwayd did not start")
	return nil, "", nil
}

// A drainLoad sends requests until its connections are told to end.
type drainLoad struct {
	t              *testing.T
	address        string
	answered, lost atomic.Int64
	ended          atomic.Bool // SIGTERM was sent
	workers        sync.WaitGroup
}

// exchange sends a request on c and reports whether the connection may be used again.
func (l *drainLoad) exchange(c net.Conn, in *bufio.Reader, path string) bool {
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody", path)
	if err == nil {
		var res *http.Response
		if res, err = http.ReadResponse(in, nil); err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if err == nil { // a refusal of a busy machine is an answer too
				l.answered.Add(1)
				return !res.Close
			}
		}
	}
	l.lost.Add(1)
	l.t.Logf("lost a request for %s: %v", path, err)
	return false
}

// keepAlive uses one connection until it is told to end, with pauses.
func (l *drainLoad) keepAlive(path string, pause time.Duration) {
	for !l.ended.Load() {
		c, err := net.Dial("tcp", l.address)
		if err != nil {
			return
		}
		in := bufio.NewReader(c)
		for l.exchange(c, in, path) {
			time.Sleep(pause) // the pace of the load
		}
		c.Close()
	}
}

// fresh uses a connection for each request until none is accepted.
func (l *drainLoad) fresh(path string, pause time.Duration) {
	for {
		c, err := net.Dial("tcp", l.address)
		if err != nil {
			return
		}
		l.exchange(c, bufio.NewReader(c), path)
		c.Close()
		time.Sleep(pause) // the pace of the load
	}
}

// http2 sends requests over HTTP/2 until no connection is accepted.
func (l *drainLoad) http2(path string, pause time.Duration) {
	transport := speaking(true)
	defer transport.CloseIdleConnections()
	var streams sync.WaitGroup
	for range 5 {
		streams.Go(func() {
			for {
				r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+l.address+path, strings.NewReader("body"))
				if err != nil {
					return
				}
				res, err := transport.RoundTrip(r)
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				if errors.Is(err, syscall.ECONNREFUSED) {
					return
				}
				if err != nil {
					l.lost.Add(1)
					l.t.Logf("lost a request of HTTP/2 for %s: %v", path, err)
					continue
				}
				l.answered.Add(1)
				time.Sleep(pause) // the pace of the load
			}
		})
	}
	streams.Wait()
}

// SIGTERM under load: no request is lost, neither one that runs nor one that is just arriving.
func TestNoRequestIsLostAtSIGTERM(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(700 * time.Millisecond) // the work of a slow handler
		}
		_, _ = io.WriteString(w, "ok")
	}))
	defer backend.Close()
	for range 2 {
		cmd, address, log := spawn(t, "-to "+backend.URL+" -listen 127.0.0.1:0 -admin off")
		l := &drainLoad{t: t, address: address}
		for i := range 20 {
			l.workers.Go(func() { l.keepAlive("/", time.Duration(i)*time.Millisecond) })
		}
		for range 5 {
			l.workers.Go(func() { l.keepAlive("/slow", 0) })
			l.workers.Go(func() { l.fresh("/", 5*time.Millisecond) })
		}
		l.workers.Go(func() { l.http2("/", time.Millisecond) })
		l.workers.Go(func() { l.http2("/slow", 0) })
		time.Sleep(300 * time.Millisecond) // of load
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		l.ended.Store(true)
		l.workers.Wait()
		require.NoError(t, cmd.Wait(), log)
		require.Zero(t, l.lost.Load())
		require.Greater(t, l.answered.Load(), int64(20))
		t.Logf("%d requests were answered", l.answered.Load())
	}
}

// A check needs no Redis, so the client of Redis must not complain on the terminal.
func TestCheckIsQuietWithoutRedis(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spillwayd.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{backend: {urls: ["http://127.0.0.1:9000"]}, redis: {url: "redis://127.0.0.1:1", nodes: 2}}`), 0o600))
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asSpillwayd+"=-check "+file)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Equal(t, "spillwayd: "+file+" is valid\n", string(text))
}
