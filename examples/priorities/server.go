package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

const (
	pool   = 8                     // connections
	takes  = 40 * time.Millisecond // each request, of its connection
	wayEnv = "SPILLWAY_PRIORITIES_SERVER"
)

// A way is how the server treats requests.
type way struct {
	Bare       bool // no gate at all
	Priorities bool
	Tell       bool // it tells clients what to hold back
}

// serves reports whether this process is the server.
func serves() bool { return os.Getenv(wayEnv) != "" }

// serve is the server. It writes its address, and ends with its standard input, and so with its parent.
func serve() error {
	var w way
	if err := json.Unmarshal([]byte(os.Getenv(wayEnv)), &w); err != nil {
		return err
	}
	handler, err := w.handler()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler answers requests, each of which needs a connection of the pool for a while.
func (w way) handler() (http.Handler, error) {
	free := make(chan struct{}, pool)
	work := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		select {
		case free <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		defer func() { <-free }()
		time.Sleep(takes)
		_, _ = io.WriteString(rw, "done\n")
	})
	if w.Bare {
		return work, nil
	}
	shed, err := shedder.New(nil)
	if err != nil {
		return nil, err
	}
	o := &httpgate.Options{TellClients: w.Tell}
	if w.Priorities {
		// The loopback is trusted: in production, name your own services and proxies.
		priority, err := httpgate.NewPriority(&httpgate.PriorityOptions{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		if err != nil {
			return nil, err
		}
		o.Request = func(r *http.Request) spillway.Request { return spillway.Request{Priority: priority(r)} }
	}
	m, err := httpgate.New(spillway.New(shed), o)
	if err != nil {
		return nil, err
	}
	return m.Handler(work), nil
}

// A process is the server as its parent sees it.
type process struct {
	addr  string
	cmd   *exec.Cmd
	stdin io.Closer
}

// start starts the server, on one processor so that the clients have another.
func start(w way) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), wayEnv+"="+string(text), "GOMAXPROCS=1")
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line := bufio.NewScanner(stdout)
	if !line.Scan() {
		p.stop()
		return nil, errors.New("the server did not start")
	}
	p.addr = line.Text()
	return p, nil
}

// stop ends the server.
func (p *process) stop() {
	_ = p.stdin.Close()
	killer := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait()
	killer.Stop()
}
