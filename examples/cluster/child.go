package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// childEnv holds the role of a process of this program, and ordersEnv its orders.
const (
	childEnv  = "SPILLWAY_CLUSTER_CHILD"
	ordersEnv = "SPILLWAY_CLUSTER_ORDERS"
)

// child returns the work of this process if it was started by start.
func child() (run func() error, ok bool) {
	if os.Getenv(childEnv) != "" {
		signal.Ignore(os.Interrupt, syscall.SIGTERM) // a terminal sends them to all; the children end with the parent
	}
	switch os.Getenv(childEnv) {
	case "server":
		return serve, true
	case "redis":
		return keepRedis, true
	}
	return nil, false
}

// A process is this program started again in another role. It ends when its standard input ends, and so with its
// parent.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

// start starts a process and waits for its first line, which it returns.
func start(what string, orders any) (*process, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	text, err := json.Marshal(orders)
	if err != nil {
		return nil, "", err
	}
	p := &process{cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+what, ordersEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, "", err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, "", err
	}
	p.lines = bufio.NewScanner(stdout)
	if !p.lines.Scan() {
		p.kill()
		return nil, "", fmt.Errorf("the %s did not start", what)
	}
	return p, p.lines.Text(), nil
}

// kill ends the process at once, without a clean shutdown.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it is gone
	_ = p.cmd.Wait()
}

// stop asks the process to end, and returns when it has ended and its readers are done.
func (p *process) stop(readers *sync.WaitGroup) {
	_ = p.stdin.Close()
	killer := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	readers.Wait()
	_ = p.cmd.Wait()
	killer.Stop()
}

// orders reads the orders from start.
func orders(into any) error { return json.Unmarshal([]byte(os.Getenv(ordersEnv)), into) }

// untilParentEnds returns when the parent has closed the standard input or is gone.
func untilParentEnds() { _, _ = io.Copy(io.Discard, os.Stdin) }

// errNoRedis names the remedy.
var errNoRedis = errors.New("there is no redis-server on this machine: install it (apt-get install redis-server, " +
	"brew install redis), or name a running one with -redis ADDRESS")
