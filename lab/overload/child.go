package overload

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"
)

// childEnv carries the orders to the server process.
const childEnv = "SPILLWAY_OVERLOAD_SERVER"

// beat is the interval at which the server prints its own view.
const beat = 100 * time.Millisecond

// childOrders are the parent's instructions for the server process.
type childOrders struct {
	Guard    string  `json:"guard"`
	Work     string  `json:"work"`
	PerMilli float64 `json:"per_milli"` // iterations per millisecond of CPU; 0 asks the server to measure it
	Capacity float64 `json:"capacity"`  // requests per second, for guards that need it; 0 if it is not known yet
	Live     string  `json:"live,omitempty"`
}

// childReady is the first line the server writes.
type childReady struct {
	Addr     string  `json:"addr"`
	PerMilli float64 `json:"per_milli"`
}

// A ServerSample is the server's own view at one moment.
type ServerSample struct {
	T          float64 `json:"t"`                      // seconds since the guard's run began
	CPUTime    float64 `json:"cpu_s"`                  // CPU the process has used so far, seconds
	Running    int64   `json:"running"`                // requests inside the work
	Arrived    int64   `json:"arrived"`                // requests that have reached the server so far
	Started    int64   `json:"started"`                // requests that have reached the work so far
	Goroutines int     `json:"goroutines"`             // one for each connection accepted, and a few
	SchedP99   float64 `json:"sched_p99_ms,omitempty"` // p99 of the wait in the Go run queue since the last sample
	View

	UnixNano int64 `json:"at,omitempty"`
}

// IsChild reports whether this process was started to be the server of a run.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// runChild serves until standard input ends, and so can never outlive its parent.
func (c *Config) runChild(in io.Reader, out io.Writer) error {
	var o childOrders
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &o); err != nil {
		return fmt.Errorf("overload: orders: %w", err)
	}
	c.capacity = o.Capacity
	_ = Renice(0) // the parent may have raised its own priority; where it could not, there is nothing to undo
	stdin := bufio.NewReader(in)
	if _, err := stdin.ReadString('\n'); err != nil { // the parent says when the process is in its control group
		return err
	}
	s, err := c.newService(o)
	if err != nil {
		return err
	}
	server, err := c.transport().NewServer(o.Guard, s)
	if err != nil {
		return fmt.Errorf("overload: guard %s: %w", o.Guard, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stop, err := c.live(o, server.View().Source)
	if err != nil {
		return err
	}
	defer stop()
	enc := json.NewEncoder(out)
	if err := enc.Encode(childReady{Addr: l.Addr().String(), PerMilli: s.burner.perMilli}); err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(l) }()
	go func() { failed <- s.show(enc, server.View) }()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		failed <- nil
	}()
	return <-failed
}

// newService prepares the work of the server.
func (c *Config) newService(o childOrders) (*Service, error) {
	if _, err := c.guard(o.Guard); err != nil {
		return nil, err
	}
	work, err := c.work(o.Work)
	if err != nil {
		return nil, err
	}
	if o.PerMilli == 0 {
		o.PerMilli = calibrate()
	}
	b := &Burner{perMilli: o.PerMilli}
	return &Service{burner: b, do: work.New(b)}, nil
}

// show writes a ServerSample every beat. In a jammed server it waits for its turn like any goroutine, so each line has the time
// at which it was taken.
func (s *Service) show(enc *json.Encoder, view StatsFunc) error {
	waits := newSchedWaits()
	for range time.Tick(beat) {
		sample := ServerSample{
			UnixNano:   time.Now().UnixNano(),
			CPUTime:    processCPU().Seconds(),
			Running:    s.running.Load(),
			Arrived:    s.arrived.Load(),
			Started:    s.started.Load(),
			Goroutines: runtime.NumGoroutine(),
			SchedP99:   waits.p99() * 1e3,
			View:       view(),
		}
		if err := enc.Encode(sample); err != nil {
			return err
		}
	}
	return nil
}
