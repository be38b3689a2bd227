// Soak runs the policies for a long time under many kinds of trouble at once, and looks for faults. Faults are a lost permit, a
// count that does not add up, a limit that lets through too much, a leaked goroutine or file, and a growing heap.
//
//	go run ./bench/soak -hours 24 -virtual        # a day in virtual time, in some minutes
//	go run ./bench/soak -real -minutes 10         # a real server, real clients and a real Redis
//	go run ./bench/soak -hours 24 -virtual -seed 7 -json soak.json
//
// In virtual time a process has four gates with all policies of the module that limit, shed or break. Its load follows a daily
// curve. Dependencies become slow, fail and hang, handlers panic and exit, contexts end, and sensors report wrong values. The
// wall clock is set ahead and back, and options change at random. Every virtual minute the soak compares the figures of every
// policy and gate with separate books. A seed repeats a run, except for the timing of goroutines in queues.
//
// The real form starts a server behind httpgate on the loopback, with a shedder and a limit on its own redis-server. It
// attacks the server with clients that come and go, read slowly, send slowly, or connect and stay silent. Meanwhile
// Redis is restarted. At the end nothing may be in flight, and goroutines, open files and heap are back at their initial
// values.
//
// The exit status is 1 after a violation or a leak. Each is printed with its time, the seed and the expected value.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// A report is the result of a run.
type report struct {
	VirtualHours float64 `json:"virtual_hours"`
	RealMinutes  float64 `json:"real_minutes,omitempty"`
	Violations   int     `json:"violations"`
	Leaked       int64   `json:"leaked"` // permits, goroutines and open files
	HeapGrowth   float64 `json:"heap_growth"`
	Requests     int64   `json:"requests"`
}

// errFound is the error of a run with findings.
var errFound = errors.New("there were violations or leaks")

const usage = `Soak runs the policies for a long time under everything at once: faults, cancels, panics, clock steps, live tuning.
It checks counters, requests in flight, limits, goroutines and memory all the time, and exits with 1 if anything is wrong.

  soak -virtual -hours 24    a day in virtual time: four gates with all policies, checked every virtual minute
  soak -real -minutes 10     a real net/http server, hostile clients and a redis-server that is restarted

`

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
	}
	virtual := flags.Bool("virtual", false, "run in virtual time")
	hours := flags.Float64("hours", 24, "length of -virtual, in virtual hours")
	live := flags.Bool("real", false, "run a real server")
	minutes := flags.Float64("minutes", 10, "length of -real, in minutes")
	seed := flags.Uint64("seed", 1, "seed of all that is random")
	file := flags.String("json", "", "`FILE` to write the figures to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case *virtual == *live:
		return errors.New("either -virtual or -real is needed")
	case *virtual && !(*hours >= 0.01 && *hours <= 1000):
		return fmt.Errorf("-hours must be 0.01 to 1000, got %v", *hours)
	case *live && !(*minutes >= 0.01 && *minutes <= 1000):
		return fmt.Errorf("-minutes must be 0.01 to 1000, got %v", *minutes)
	}
	var r report
	if *virtual {
		w, err := newWorld(*seed, out)
		if err != nil {
			return err
		}
		r = w.play(time.Duration(*hours * float64(time.Hour))) //nolint:contextcheck // the contexts of requests are those of virtual clients
		w.summary()
	} else {
		var err error
		l := &liveRun{seed: *seed, out: out, settle: 10 * time.Second}
		if r, err = l.run(ctx, time.Duration(*minutes*float64(time.Minute))); err != nil {
			return err
		}
	}
	return finish(r, *file, out)
}

// finish prints and writes r, and returns errFound if r contains findings.
func finish(r report, file string, out io.Writer) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, string(text))
	if file != "" {
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			return err
		}
	}
	if r.Violations > 0 || r.Leaked > 0 {
		return errFound
	}
	return nil
}
