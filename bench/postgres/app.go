package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spillway-go/spillway/lab/overload"
)

const (
	appEnv   = "SPILLWAY_POSTGRES_APP" // carries the orders to the app process
	poolSize = 8                       // connections to the database
	beat     = 100 * time.Millisecond  // how often the app shows its own view
)

// orders are the parent's instructions for the app.
type orders struct {
	Guard string        `json:"guard"`
	URL   string        `json:"url"` // of the database
	SLO   time.Duration `json:"slo"`
}

// A glimpse is the figures of a guard at one moment.
type glimpse struct {
	UnixNano int64                    `json:"at"`
	Views    map[string]overload.View `json:"views"`
}

func isApp() bool { return os.Getenv(appEnv) != "" }

// runApp serves until standard input ends, and so can never outlive its parent.
func runApp(in io.Reader, out io.Writer) error {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv(appEnv)), &o); err != nil {
		return fmt.Errorf("orders: %w", err)
	}
	stdin := bufio.NewReader(in)
	if _, err := stdin.ReadString('\n'); err != nil { // the parent writes a line when the process is in its control group
		return err
	}
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return err
	}
	config.MaxConns = poolSize
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return err
	}
	h, all, err := newApp(o.Guard, o.SLO, pool)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	if err := enc.Encode(l.Addr().String()); err != nil {
		return err
	}
	failed := make(chan error, 3)
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { failed <- srv.Serve(l) }()
	go func() { failed <- show(enc, all) }()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		failed <- nil
	}()
	return <-failed
}

// show writes a glimpse every beat.
func show(enc *json.Encoder, all views) error {
	for range time.Tick(beat) {
		g := glimpse{UnixNano: time.Now().UnixNano(), Views: make(map[string]overload.View, len(all))}
		for name, view := range all {
			g.Views[name] = view()
		}
		if err := enc.Encode(g); err != nil {
			return err
		}
	}
	return nil
}

// An app is the app in a separate process.
type app struct {
	addr  string
	cmd   *exec.Cmd
	ended <-chan struct{}
	stdin io.WriteCloser
	read  sync.WaitGroup

	mu   sync.Mutex
	seen []glimpse
}

// startApp starts this program once more as the app, in the given control group.
func startApp(ctx context.Context, o orders, group *overload.Cgroup) (*app, error) {
	cmd, stdin, err := overload.Again(ctx, appEnv, o)
	if err != nil {
		return nil, err
	}
	a := &app{cmd: cmd, stdin: stdin}
	a.cmd.Env = append(a.cmd.Env, "GOMAXPROCS=2") // what Go itself chooses under a quota of less than 2 CPUs
	own(a.cmd, account{})
	r, w, err := os.Pipe() // Wait would close the pipe of StdoutPipe while it is read
	if err != nil {
		return nil, err
	}
	a.cmd.Stdout = w
	a.ended, err = keep(a.cmd)
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	lines := json.NewDecoder(bufio.NewReader(r))
	if err := a.begin(lines, group); err != nil {
		a.stop()
		r.Close()
		return nil, fmt.Errorf("app: %w", err)
	}
	a.read.Go(func() {
		a.collect(lines)
		r.Close()
	})
	return a, nil
}

// begin moves the process to its group, starts it and waits until it serves.
func (a *app) begin(lines *json.Decoder, group *overload.Cgroup) error {
	if err := group.Add(a.cmd.Process.Pid); err != nil {
		return fmt.Errorf("%w: control group: %w", errSkip, err)
	}
	if _, err := io.WriteString(a.stdin, "go\n"); err != nil {
		return err
	}
	return lines.Decode(&a.addr)
}

// collect reads the app's glimpses until it ends.
func (a *app) collect(lines *json.Decoder) {
	for {
		var g glimpse
		if lines.Decode(&g) != nil {
			return
		}
		a.mu.Lock()
		a.seen = append(a.seen, g)
		a.mu.Unlock()
	}
}

// stop ends the process and returns its glimpses.
func (a *app) stop() []glimpse {
	_ = a.stdin.Close() // ends the app, if it has not ended already
	select {
	case <-a.ended:
	case <-time.After(300 * time.Millisecond):
		_ = tell(a.cmd.Process.Pid, sigKill)
		<-a.ended
	}
	a.read.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}
