// Cluster measures what a decision by a limiter on Redis costs the server, for Spillway and its peers side by side.
//
//	go run ./bench/cluster
//
// It starts a redis-server, unless it is given the address of one with nothing else to do. Every limiter is measured once in
// each pass, and the passes follow one another, so that a slow spell of the machine meets all of them alike. The table gives
// medians over the passes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/zeromicro/go-zero/core/logx"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	addr := flags.String("redis", "", "address of a Redis with nothing else to do; everything in it is deleted")
	passes := flags.Int("passes", 5, "how often each limiter is measured")
	calls := flags.Int("calls", 4000, "decisions in each pass, one after the other")
	callers := flags.Int("callers", 32, "goroutines that ask about one key at once, to count errors")
	if err := flags.Parse(args); err != nil {
		return err
	}
	logx.Disable()
	if *addr == "" {
		server, stop, err := startRedis()
		if err != nil {
			return err
		}
		defer stop()
		*addr = server
	}
	client := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true, PoolSize: *callers})
	defer client.Close()
	b := bench{client: client, calls: *calls, callers: *callers}
	return b.run(out, *addr, *passes)
}

// startRedis starts a server on a free port.
func startRedis() (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	_ = l.Close()
	dir, err := os.MkdirTemp("", "spillway-bench")
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	for range 500 {
		if err = client.Ping(context.Background()).Err(); err == nil {
			return addr, stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return "", nil, err
}

type bench struct {
	client         *redis.Client
	calls, callers int
}

// A cost is what one decision takes.
type cost struct {
	script, cpu float64 // µs of the server: in scripts, and in all
	trip        float64 // µs that the caller waits
	failed      float64 // part of the calls that end in an error while many ask about one key
}

func (b *bench) run(out io.Writer, addr string, passes int) error {
	all := entries(b.client, addr)
	costs := make([][]cost, len(all))
	for range passes {
		for i, e := range all {
			c, err := b.measure(e)
			if err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			costs[i] = append(costs[i], c)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "limiter\tscript µs\tserver CPU µs\tround trip µs\terrors, %d callers\n", b.callers)
	for i, e := range all {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.0f\t%.1f %%\n", e.name,
			median(costs[i], func(c cost) float64 { return c.script }), median(costs[i], func(c cost) float64 { return c.cpu }),
			median(costs[i], func(c cost) float64 { return c.trip }), 100*median(costs[i], func(c cost) float64 { return c.failed }))
	}
	return w.Flush()
}

func median(costs []cost, of func(cost) float64) float64 {
	v := make([]float64, len(costs))
	for i, c := range costs {
		v[i] = of(c)
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func (b *bench) measure(e entry) (cost, error) {
	ctx := context.Background()
	if err := b.client.FlushDB(ctx).Err(); err != nil {
		return cost{}, err
	}
	for range 100 { // let the server learn the script
		if err := e.ask(ctx); err != nil {
			return cost{}, err
		}
	}
	if err := b.client.ConfigResetStat(ctx).Err(); err != nil {
		return cost{}, err
	}
	cpu, begin := b.cpu(ctx), time.Now()
	for range b.calls {
		if err := e.ask(ctx); err != nil {
			return cost{}, err
		}
	}
	c := cost{trip: float64(time.Since(begin).Microseconds()), cpu: b.cpu(ctx) - cpu}
	info := b.client.Info(ctx, "commandstats").Val()
	c.script = field(info, "cmdstat_evalsha:", "usec=") + field(info, "cmdstat_eval:", "usec=")
	n := float64(b.calls)
	return cost{script: c.script / n, cpu: c.cpu / n, trip: c.trip / n, failed: b.failures(ctx, e)}, nil
}

// failures returns the part of calls that end in an error while many goroutines ask about the same key.
func (b *bench) failures(ctx context.Context, e entry) float64 {
	var failed atomic.Int64
	var wg sync.WaitGroup
	each := max(b.calls/b.callers/4, 1)
	for range b.callers {
		wg.Go(func() {
			for range each {
				if err := e.ask(ctx); err != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return float64(failed.Load()) / float64(each*b.callers)
}

// cpu returns the µs that the main thread of the server has used.
func (b *bench) cpu(ctx context.Context) float64 {
	info := b.client.Info(ctx, "cpu").Val()
	return 1e6 * (field(info, "used_cpu_sys_main_thread", ":") + field(info, "used_cpu_user_main_thread", ":"))
}

// field returns the number behind name in the line that begins with prefix.
func field(info, prefix, name string) float64 {
	for line := range strings.Lines(info) {
		if strings.HasPrefix(line, prefix) {
			_, rest, _ := strings.Cut(line, name)
			digits, _, _ := strings.Cut(strings.TrimSpace(rest), ",")
			v, _ := strconv.ParseFloat(digits, 64)
			return v
		}
	}
	return 0
}

var errRefused = errors.New("refused, although the limit is far away")
