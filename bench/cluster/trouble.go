package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// fleetSize is how many nodes share a limit.
const fleetSize = 4

// A loss is the number of requests that one limiter admits while Redis is down, as a fraction of the limit.
type loss struct {
	Name     string  `json:"name"`
	Before   float64 `json:"before"`
	During   float64 `json:"during"`
	FailOpen float64 `json:"during_fail_open"` // with a caller that treats an error as a yes
	After    float64 `json:"after"`            // in twice that time after the empty restart of Redis
	Errors   float64 `json:"errors"`           // part of the calls that end in one while Redis is away
	P99      float64 `json:"p99_ms"`           // ms that a decision takes while Redis is away
}

// losses kills Redis for a while, while all limiters get the same load.
func (b *bench) losses(ctx context.Context) ([]loss, error) {
	if err := b.server.Client.FlushDB(ctx).Err(); err != nil {
		return nil, err
	}
	f, err := startFleet(ctx, b.server.Addr, b.rate, make([]time.Duration, fleetSize))
	if err != nil {
		return nil, err
	}
	defer f.stop()
	spend(ctx, b.phase) // for the first burst, and leases
	before := spend(ctx, b.phase)
	b.server.Kill()
	during := spend(ctx, b.phase)
	if err := b.server.Start(ctx); err != nil {
		return nil, err
	}
	after := spend(ctx, 2*b.phase) // time enough for all to find it
	f.stop()
	var out []loss
	for i, name := range f.limiters {
		b, d, a := f.sum(i, before), f.sum(i, during), f.sum(i, after)
		out = append(out, loss{
			Name: name, Before: f.ofLimit(b.total(), before), During: f.ofLimit(d.total(), during),
			FailOpen: f.ofLimit(d.total()+d.errors, during), After: f.ofLimit(a.total(), after),
			Errors: float64(d.errors) / float64(max(d.calls, 1)), P99: quantile(d.waits, 0.99) / 1000,
		})
	}
	return out, ctx.Err()
}

func lossTable(losses []loss, rate int, phase time.Duration) table {
	t := table{
		title: fmt.Sprintf("Redis is killed for %v: %d processes share %d per second, and each is offered as many", phase, fleetSize, rate),
		head: []string{
			"limiter", "before, of the limit", "without Redis", "without, errors admitted", "after", "errors without Redis", "p99 of a decision without, ms",
		},
	}
	for _, l := range losses {
		t.add(l.Name, "%.0f %%", 100*l.Before, "%.0f %%", 100*l.During, "%.0f %%", 100*l.FailOpen, "%.0f %%", 100*l.After,
			"%.0f %%", 100*l.Errors, "%s", short(l.P99))
	}
	return t
}

// short keeps two digits.
func short(v float64) string {
	if v < 1 {
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// A skew is the number of requests that one limiter admits when the clocks of nodes differ, as a fraction of the limit.
type skew struct {
	Name  string  `json:"name"`
	Clock string  `json:"clock"` // that decides
	Total float64 `json:"total"`
	Least float64 `json:"least"` // share of the node that got least, as a fraction of an even share
	Most  float64 `json:"most"`
	P99   float64 `json:"p99_ms"`
}

// skews sets the clocks of half the nodes ahead by a second.
func (b *bench) skews(ctx context.Context) ([]skew, error) {
	if err := b.server.Client.FlushDB(ctx).Err(); err != nil {
		return nil, err
	}
	ahead := make([]time.Duration, fleetSize)
	for i := range ahead[fleetSize/2:] {
		ahead[i] = time.Second
	}
	f, err := startFleet(ctx, b.server.Addr, b.rate, ahead)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	spend(ctx, b.phase)
	s := spend(ctx, 2*b.phase)
	f.stop()
	var out []skew
	for i, name := range f.limiters {
		got := f.sum(i, s)
		out = append(out, skew{
			Name: name, Clock: f.clocks[i], Total: f.ofLimit(got.total(), s), P99: quantile(got.waits, 0.99) / 1000,
			Least: fleetSize * f.ofLimit(slices.Min(got.admitted), s), Most: fleetSize * f.ofLimit(slices.Max(got.admitted), s),
		})
	}
	return out, ctx.Err()
}

func skewTable(skews []skew) table {
	t := table{
		title: "The clocks of half the processes are a second ahead, otherwise the same",
		head:  []string{"limiter", "clock that decides", "of the limit", "least process, of its share", "most", "p99 of a decision, ms"},
	}
	for _, s := range skews {
		t.add(s.Name, "%s", s.Clock, "%.0f %%", 100*s.Total, "%.0f %%", 100*s.Least, "%.0f %%", 100*s.Most, "%s", short(s.P99))
	}
	return t
}

func quantile(v []int64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return float64(v[min(int(q*float64(len(v))), len(v)-1)])
}
