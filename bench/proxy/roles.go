package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// The pool of workers, in every language.
const (
	workers = 4
	work    = 20 * time.Millisecond
)

// python serves as a pool of threads in Python. It prints its address.
const python = `
import sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
places = threading.Semaphore(4)
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        with places:
            time.sleep(0.02)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *args): pass
class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True
server = Server(("127.0.0.1", 0), Handler)
print("listening on http://127.0.0.1:%d" % server.server_port, flush=True)
server.serve_forever()
`

// play serves as a child process until SIGTERM.
func play(role string, args []string) {
	var (
		h      http.Handler
		server http.Server
	)
	switch role {
	case "attack":
		attack(args[0], args[1])
		return
	case "fast":
		answer := []byte(strings.Repeat("x", 1024))
		h = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) })
	case "pool":
		places := make(chan struct{}, workers)
		h = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			places <- struct{}{}
			time.Sleep(work)
			<-places
			_, _ = io.WriteString(w, "ok")
		})
	case "cpu":
		perMilli := calibrate()
		h = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			hash(perMilli)
			_, _ = io.WriteString(w, "ok")
		})
	case "plain":
		h = plainProxy(args[0])
		server.ReadHeaderTimeout, server.IdleTimeout, server.MaxHeaderBytes = 5*time.Second, 75*time.Second, 32<<10
	}
	server.Handler = h
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("listening on http://%s\n", l.Addr())
	panic(server.Serve(l))
}

// plainProxy returns a proxy that does nothing but what any proxy must, with the transport of spillwayd.
func plainProxy(backend string) http.Handler {
	to, err := url.Parse(backend)
	if err != nil {
		panic(err)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport:  &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true, IdleConnTimeout: 90 * time.Second},
		BufferPool: new(buffers),
	}
}

// hash does n pieces of work.
func hash(n int) {
	var block [4096]byte
	for range n {
		sum := sha256.Sum256(block[:])
		copy(block[:], sum[:])
	}
}

// calibrate returns how many pieces take a millisecond of CPU: the least of several times counts.
func calibrate() int {
	const n = 200
	least := time.Hour
	for range 50 {
		at := time.Now()
		hash(n)
		least = min(least, time.Since(at))
	}
	return max(1, int(n*time.Millisecond/least))
}

type buffers struct{ sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.Pool.Get().(*[32 << 10]byte); ok {
		return p[:]
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.Pool.Put((*[32 << 10]byte)(p)) }

// A child is a process of the measurement.
type child struct {
	cmd    *exec.Cmd
	url    string
	master bool // it has workers, which it ends at SIGTERM
}

// spawn starts a process that prints its address after "http://", or the address of spillwayd's listener.
func spawn(program string, args ...string) (*child, error) {
	cmd := exec.CommandContext(context.Background(), program, args...)
	text, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		at, ok := strings.CutPrefix(line, "listening on ")
		if _, address, found := strings.Cut(line, `"address":"`); found {
			address, _, _ = strings.Cut(address, `"`)
			at, ok = "http://"+address, true
		}
		if ok {
			go func() { _, _ = io.Copy(io.Discard, text) }()
			return &child{cmd: cmd, url: at}, nil
		}
		fmt.Fprintln(os.Stderr, line)
	}
	return nil, fmt.Errorf("%s ended: %w", program, cmd.Wait())
}

func spawnSelf(role string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return spawn(self, append([]string{"role", role}, args...)...)
}

// end ends the process.
func (c *child) end() {
	if c == nil {
		return
	}
	_ = c.cmd.Process.Signal(c.signal())
	_ = c.cmd.Wait()
}
