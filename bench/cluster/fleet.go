package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/spillway-go/spillway/lab/overload"
)

// A fleet is several nodes, each in a separate process with one of each limiter. The load of each node alone equals the
// limit of all nodes together.
type fleet struct {
	rate     int
	limiters []string
	clocks   []string
	nodes    []*process
	readers  sync.WaitGroup

	mu      sync.Mutex
	tallies [][]tally // of each node; guarded by mu
}

type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// startFleet starts nodes whose clocks are ahead by the given times.
func startFleet(ctx context.Context, addr string, rate int, ahead []time.Duration) (*fleet, error) {
	f := &fleet{rate: rate, tallies: make([][]tally, len(ahead))}
	known := limit{addr: addr, rate: rate, nodes: 1}.compared()
	defer closeAll(known)
	for _, e := range known {
		f.limiters, f.clocks = append(f.limiters, e.name), append(f.clocks, e.clock)
	}
	for _, d := range ahead {
		p, err := startNode(ctx, nodeOrders{Redis: addr, Rate: rate, Nodes: len(ahead), Ahead: d})
		if err != nil {
			f.stop()
			return nil, err
		}
		f.nodes = append(f.nodes, p)
	}
	for i, p := range f.nodes {
		f.readers.Go(func() { f.read(i, p) })
		if _, err := io.WriteString(p.stdin, "go\n"); err != nil {
			f.stop()
			return nil, err
		}
	}
	return f, nil
}

// startNode starts a node and waits until it is ready.
func startNode(ctx context.Context, o nodeOrders) (*process, error) {
	cmd, stdin, err := overload.Again(ctx, ordersEnv, o)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.lines = bufio.NewScanner(stdout)
	if !p.lines.Scan() {
		p.stop()
		return nil, fmt.Errorf("a node did not start: %w", p.cmd.Wait())
	}
	return p, nil
}

func (p *process) stop() {
	_ = p.stdin.Close() // it ends when its input does
}

func (f *fleet) read(node int, p *process) {
	for p.lines.Scan() {
		var t tally
		if json.Unmarshal(p.lines.Bytes(), &t) != nil {
			continue
		}
		f.mu.Lock()
		f.tallies[node] = append(f.tallies[node], t)
		f.mu.Unlock()
	}
}

// stop ends the nodes. Their counts stay.
func (f *fleet) stop() {
	for _, p := range f.nodes {
		p.stop()
		defer time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() }).Stop()
	}
	f.readers.Wait()
	for _, p := range f.nodes {
		_ = p.cmd.Wait()
	}
}

// A span is a stretch of the wall clock, in whole windows.
type span struct{ first, end int64 }

// spend lets time pass, and returns the windows that lie within.
func spend(ctx context.Context, d time.Duration) span {
	w := int64(window)
	first := (time.Now().UnixNano() + w - 1) / w
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return span{first, time.Now().UnixNano() / w}
}

func (s span) seconds() float64 { return float64(s.end-s.first) * window.Seconds() }

// A sum holds the counts of one limiter over a stretch of time.
type sum struct {
	admitted []int // by node
	errors   int
	calls    int
	waits    []int64 // µs
}

func (f *fleet) sum(limiter int, s span) sum {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := sum{admitted: make([]int, len(f.tallies))}
	for i, tallies := range f.tallies {
		for _, t := range tallies {
			if t.Limiter != limiter || t.Window < s.first || t.Window >= s.end {
				continue
			}
			out.admitted[i] += t.Admitted
			out.errors += t.Errors
			out.calls += t.Admitted + t.Refused + t.Errors
			out.waits = append(out.waits, t.Waits...)
		}
	}
	return out
}

func (s *sum) total() int {
	n := 0
	for _, a := range s.admitted {
		n += a
	}
	return n
}

// ofLimit returns n requests in s as a fraction of the limit, without a burst.
func (f *fleet) ofLimit(n int, s span) float64 { return float64(n) / (float64(f.rate) * s.seconds()) }
