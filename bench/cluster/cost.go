package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/limiter"
)

// A cost is the cost of one decision.
type cost struct {
	Name    string  `json:"name"`
	Command float64 `json:"command_us"` // µs that the server spends in its commands, including those called by scripts
	Busy    float64 `json:"busy_us"`    // the same, while many ask about one key
	CPU     float64 `json:"cpu_us"`     // µs of CPU time of the server, including reading and writing
	Trip    float64 `json:"trip_us"`    // µs that the caller waits
	Errors  float64 `json:"errors"`     // part of the calls that end in an error while many ask about one key
}

// costs measures the cost of a decision for the server.
func (b *bench) costs(ctx context.Context) ([]cost, error) {
	l := limit{addr: b.server.Addr, rate: plenty, nodes: 1, loss: cluster.RefuseAll, wait: time.Second} // a busy machine is not an error
	all := []entry{
		l.bucket(),
		l.rule("spillway FixedWindow", limiter.FixedWindow{Limit: plenty, Period: time.Hour}),
		l.rule("spillway SlidingWindow", limiter.SlidingWindow{Limit: plenty, Window: time.Hour}),
		l.rule("spillway SlidingLog", limiter.SlidingLog{Limit: 100_000, Window: time.Hour}),
		l.redisRate(), l.throttled(), l.zeroToken(), l.zeroPeriod(),
	}
	defer closeAll(all)
	passes := make([][]cost, len(all))
	for range b.passes {
		for i := range all {
			c, err := b.cost(ctx, &all[i])
			if err != nil {
				return nil, err
			}
			passes[i] = append(passes[i], c)
		}
	}
	out := make([]cost, len(all))
	for i, p := range passes {
		out[i] = cost{
			Name: all[i].name, Command: median(p, func(c cost) float64 { return c.Command }),
			Busy: median(p, func(c cost) float64 { return c.Busy }), CPU: median(p, func(c cost) float64 { return c.CPU }),
			Trip: median(p, func(c cost) float64 { return c.Trip }), Errors: median(p, func(c cost) float64 { return c.Errors }),
		}
	}
	return out, nil
}

func (b *bench) cost(ctx context.Context, e *entry) (cost, error) {
	if err := b.server.Client.FlushDB(ctx).Err(); err != nil {
		return cost{}, err
	}
	for range 100 { // let the server learn the script
		if err := e.must(ctx); err != nil {
			return cost{}, err
		}
	}
	var c cost
	n := float64(b.calls)
	var err error
	c.Command, err = b.commands(ctx, e, n, func() error {
		cpu, begin := b.server.cpu(ctx), time.Now()
		for range b.calls {
			if err := e.must(ctx); err != nil {
				return err
			}
		}
		c.Trip, c.CPU = time.Since(begin).Seconds()*1e6/n, (b.server.cpu(ctx)-cpu)/n
		return nil
	})
	if err != nil {
		return c, err
	}
	each := max(b.calls/b.callers, 1)
	n = float64(each * b.callers)
	c.Busy, err = b.commands(ctx, e, n, func() error {
		c.Errors = b.failures(ctx, e, each) / n
		return ctx.Err()
	})
	return c, err
}

// commands returns the µs that the server spends in commands for each of n decisions.
func (b *bench) commands(ctx context.Context, e *entry, n float64, decide func() error) (float64, error) {
	if err := b.server.Client.ConfigResetStat(ctx).Err(); err != nil {
		return 0, err
	}
	if err := decide(); err != nil {
		return 0, err
	}
	stats := b.server.commands(ctx)
	scripts := stats["evalsha"].add(stats["eval"]) // including the commands that they call
	usec := scripts.usec
	for name, times := range e.bare {
		if st := stats[name]; st.calls > 0 { // some of these calls are by scripts
			usec += st.usec / st.calls * scripts.calls * float64(times)
		}
	}
	return usec / n, nil
}

// failures returns how many calls end in an error while many goroutines ask about the same key.
func (b *bench) failures(ctx context.Context, e *entry, each int) float64 {
	var failed atomic.Int64
	var wg sync.WaitGroup
	for range b.callers {
		wg.Go(func() {
			for range each {
				if e.must(ctx) != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return float64(failed.Load())
}

func median[T any](of []T, by func(T) float64) float64 {
	v := make([]float64, len(of))
	for i, c := range of {
		v[i] = by(c)
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func costTable(costs []cost, callers int) table {
	t := table{
		title: "What a decision costs the server",
		head: []string{
			"limiter", "commands, µs", fmt.Sprintf("commands, %d callers, µs", callers), "all the server does, µs", "round trip, µs",
			fmt.Sprintf("errors, %d callers", callers),
		},
	}
	for _, c := range costs {
		t.add(c.Name, "%.1f", c.Command, "%.1f", c.Busy, "%.0f", c.CPU, "%.0f", c.Trip, "%.1f %%", 100*c.Errors)
	}
	return t
}
