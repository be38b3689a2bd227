package overload

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// A process is a server in a separate process.
type process struct {
	ready childReady
	cmd   *exec.Cmd
	stdin io.WriteCloser
	read  sync.WaitGroup

	mu      sync.Mutex
	samples []ServerSample
}

// Again returns a command that runs this program once more, with orders as JSON in the environment variable env, and the
// standard input of that process. A process that ends with its input cannot outlive its parent.
func Again(ctx context.Context, env string, orders any) (*exec.Cmd, io.WriteCloser, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(orders)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), env+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	return cmd, stdin, err
}

// startProcess starts this program once more as the server, in the given control group if there is one.
func startProcess(ctx context.Context, o childOrders, group *Cgroup) (*process, error) {
	cmd, stdin, err := Again(ctx, childEnv, o)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin}
	p.cmd.Env = append(p.cmd.Env, "GOMAXPROCS=1")
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines := json.NewDecoder(bufio.NewReader(stdout))
	if err := p.begin(lines, group); err != nil {
		p.stop()
		return nil, fmt.Errorf("overload: server: %w", err)
	}
	p.read.Go(func() { p.collect(lines) })
	return p, nil
}

// begin moves the process to its group, tells it to go on and waits until it serves.
func (p *process) begin(lines *json.Decoder, group *Cgroup) error {
	if group != nil {
		if err := group.Add(p.cmd.Process.Pid); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(p.stdin, "go\n"); err != nil {
		return err
	}
	return lines.Decode(&p.ready)
}

// collect reads the output of the server until it ends.
func (p *process) collect(lines *json.Decoder) {
	for {
		var s ServerSample
		if lines.Decode(&s) != nil {
			return
		}
		p.mu.Lock()
		p.samples = append(p.samples, s)
		p.mu.Unlock()
	}
}

// latest returns the last line that the server has written.
func (p *process) latest() (ServerSample, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.samples) == 0 {
		return ServerSample{}, false
	}
	return p.samples[len(p.samples)-1], true
}

// stop ends the process and returns its output, with times counted from base.
func (p *process) stop() {
	_ = p.stdin.Close() // tells the server to end, if it has not ended already
	killer := time.AfterFunc(300*time.Millisecond, func() { _ = p.cmd.Process.Kill() })
	p.read.Wait()
	_ = p.cmd.Wait() // killed or not, it is gone
	killer.Stop()
}

// since returns the output of the server, with times counted from base.
func (p *process) since(base time.Time) []ServerSample {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]ServerSample, 0, len(p.samples))
	for _, s := range p.samples {
		s.T = float64(s.UnixNano-base.UnixNano()) / 1e9
		s.UnixNano = 0
		if s.T >= 0 {
			out = append(out, s)
		}
	}
	return out
}
