// Cluster compares the limits of package cluster with their peers on a real Redis, in one run.
//
//	go run ./bench/cluster
//	go run ./bench/cluster -json cluster.json
//	go run ./bench/cluster -only cost,hot -redis 127.0.0.1:6379
//
// It has four parts. Part cost measures what a decision costs the server, and hot how many decisions about one key a
// process gets. Part loss measures what processes let through together while Redis is killed, and skew the same while
// their clocks differ. The program starts a redis-server. With -redis it uses your own idle server, which it does not kill:
// then loss is left out.
//
// In cost and hot every limiter is measured once in each pass. The passes follow one another, so that a slow spell of
// the machine affects all limiters alike. The tables give medians over the passes. In loss and skew all limiters run at
// once, in the same processes, on the same Redis.
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
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/zeromicro/go-zero/core/logx"

	"github.com/spillway-go/spillway/bench/internal/redisserver"
)

func main() {
	if isNode() {
		exit(beNode())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A bench is one run.
type bench struct {
	server         server
	parts          []string
	passes         int
	calls, callers int
	slice, phase   time.Duration
	rate           int
}

// A result is all that was measured.
type result struct {
	Go    string `json:"go"`
	Redis string `json:"redis"`
	Cost  []cost `json:"cost,omitempty"`
	Hot   []heat `json:"hot,omitempty"`
	Loss  []loss `json:"loss,omitempty"`
	Skew  []skew `json:"skew,omitempty"`
}

// partNames are the parts, in their order.
var partNames = []string{"cost", "hot", "loss", "skew"}

func run(ctx context.Context, args []string, out io.Writer) error {
	var b bench
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(out)
	addr := flags.String("redis", "", "`ADDRESS` of a Redis with nothing else to do; everything in it is deleted")
	file := flags.String("json", "", "`FILE` to write the figures to")
	only := flags.String("only", strings.Join(partNames, ","), "parts to run")
	flags.IntVar(&b.passes, "passes", 11, "how often each limiter is measured in cost and hot")
	flags.IntVar(&b.calls, "calls", 1500, "decisions in each pass of cost, one after the other, and then by many callers")
	flags.IntVar(&b.callers, "callers", 32, "goroutines that ask about one key at once")
	flags.DurationVar(&b.slice, "slice", 100*time.Millisecond, "how long each limiter is measured in each pass of hot")
	flags.DurationVar(&b.phase, "phase", 2*time.Second, "how long Redis is away, and how long is measured before and after")
	flags.IntVar(&b.rate, "rate", 200, "requests per second that all processes together may let through in loss and skew")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b.parts = strings.Split(*only, ",")
	if err := b.validate(); err != nil {
		return err
	}
	if *addr != "" {
		b.parts = slices.DeleteFunc(b.parts, func(p string) bool { return p == "loss" }) // a Redis given by -redis is not killed
	}
	logx.Disable()
	redis.SetLogger(silent{})
	var err error
	if b.server.Server, err = redisserver.Open(ctx, *addr); err != nil {
		return err
	}
	defer b.server.Close()
	r, err := b.measure(ctx)
	if err != nil {
		return err
	}
	if err := b.print(out, r); err != nil || *file == "" {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*file, append(text, '\n'), 0o600)
}

func (b *bench) validate() error {
	for _, p := range b.parts {
		if !slices.Contains(partNames, p) {
			return fmt.Errorf("-only: no part %q; there are %s", p, strings.Join(partNames, ", "))
		}
	}
	if b.passes < 1 || b.calls < 1 || b.callers < 1 || b.rate < 1 {
		return fmt.Errorf("-passes, -calls, -callers and -rate must be at least 1, got %d, %d, %d and %d", b.passes, b.calls, b.callers, b.rate)
	}
	if b.slice <= 0 || b.phase < 2*window {
		return fmt.Errorf("-slice must be positive and -phase at least %v, got %v and %v", 2*window, b.slice, b.phase)
	}
	return nil
}

func (b *bench) measure(ctx context.Context) (*result, error) {
	r := &result{Go: runtime.Version(), Redis: b.server.version(ctx)}
	for _, part := range b.parts {
		var err error
		switch part {
		case "cost":
			r.Cost, err = b.costs(ctx)
		case "hot":
			r.Hot, err = b.heats(ctx)
		case "loss":
			r.Loss, err = b.losses(ctx)
		case "skew":
			r.Skew, err = b.skews(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part, err)
		}
	}
	return r, nil
}

func (b *bench) print(out io.Writer, r *result) error {
	fmt.Fprintf(out, "%s %s/%s, Redis %s\n", r.Go, runtime.GOOS, runtime.GOARCH, r.Redis)
	for _, t := range []table{
		costTable(r.Cost, b.callers), heatTable(r.Hot, b.callers), lossTable(r.Loss, b.rate, b.phase), skewTable(r.Skew),
	} {
		if len(t.rows) == 0 {
			continue
		}
		if err := t.write(out); err != nil {
			return err
		}
	}
	return nil
}
