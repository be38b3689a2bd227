package redistest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// These environment variables tell a process of the test binary its role, and the address of the server for examples.
const (
	childEnv   = "SPILLWAY_REDISTEST_CHILD"
	ordersEnv  = "SPILLWAY_REDISTEST_ORDERS"
	exampleEnv = "SPILLWAY_REDISTEST_EXAMPLE"
)

// A Child is a second run of this test binary in a separate process.
type Child struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
	ended chan struct{}
	read  sync.WaitGroup
}

// Spawn runs the function that [Main] knows by name in a separate process, which ends no later than the test. The
// orders reach it as JSON, through [Orders].
func Spawn(t testing.TB, name string, orders any) *Child {
	t.Helper()
	text, err := json.Marshal(orders)
	if err != nil {
		t.Fatalf("redistest: orders: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	c := &Child{t: t, cmd: exec.CommandContext(context.Background(), self), lines: make(chan string, 4096), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childEnv+"="+name, ordersEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	dieWithParent(c.cmd)
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	c.read.Go(func() { c.collect(stdout) })
	go func() { // Kill waits for it
		c.read.Wait()
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	t.Cleanup(c.Kill)
	return c
}

// collect forwards the output of the process, and drops lines if thousands of them are unread.
func (c *Child) collect(stdout io.Reader) {
	defer close(c.lines)
	scan := bufio.NewScanner(stdout)
	for scan.Scan() {
		select {
		case c.lines <- scan.Text():
		default:
		}
	}
}

// Lines returns the output of the process. It is closed when the process has ended.
func (c *Child) Lines() <-chan string { return c.lines }

// Line returns the next line that the process prints, and fails the test if there is none in time.
func (c *Child) Line(within time.Duration) string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatal("redistest: the child has ended")
		}
		return line
	case <-time.After(within):
		c.t.Fatal("redistest: the child says nothing")
	}
	return ""
}

// Send writes a line to the standard input of the process.
func (c *Child) Send(line string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.stdin, line); err != nil {
		c.t.Fatalf("redistest: %v", err)
	}
}

// Kill kills the process (SIGKILL: it cannot clean up) and returns when it is gone.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // fails only if it is gone
	<-c.ended
}

// Wait closes the standard input of the process and waits until it has ended, and fails the test if that takes too long.
func (c *Child) Wait(within time.Duration) {
	c.t.Helper()
	_ = c.stdin.Close()
	select {
	case <-c.ended:
	case <-time.After(within):
		c.t.Fatal("redistest: the child does not end")
	}
}

// Pause stops the process without ending it. It skips the test on systems that have no such signal.
func (c *Child) Pause() {
	c.t.Helper()
	check(c.t, pause(c.cmd.Process))
}

// Resume ends a Pause.
func (c *Child) Resume() {
	c.t.Helper()
	check(c.t, resume(c.cmd.Process))
}
