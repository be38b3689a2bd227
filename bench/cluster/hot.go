package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/cluster"
)

// A heat is the rate of decisions about one key in a process.
type heat struct {
	Name  string  `json:"name"`
	One   speed   `json:"one_caller"`
	Many  speed   `json:"many_callers"`
	Asked float64 `json:"redis_commands"` // run by the server per second for many callers, including those in scripts
}

// A speed is in decisions per second.
type speed struct {
	PerSecond float64 `json:"per_second"`
	Ratio     float64 `json:"leased_ratio"` // ratio of leased decisions to these decisions, in the same pass
}

// heats measures how many decisions about one key callers get. The first entry is the yardstick of the ratios.
func (b *bench) heats(ctx context.Context) ([]heat, error) {
	all := limit{addr: b.server.Addr, rate: plenty, nodes: 1, loss: cluster.RefuseAll}.compared()
	all[0].close()
	all[0] = limit{addr: b.server.Addr, rate: abundance, nodes: 1, loss: cluster.RefuseAll}.quota()
	defer closeAll(all)
	passes := make([][]heat, len(all))
	for range b.passes {
		var leased heat
		for i := range all {
			h, err := b.heatOf(ctx, &all[i])
			if err != nil {
				return nil, err
			}
			if i == 0 {
				leased = h
			}
			h.One.Ratio, h.Many.Ratio = leased.One.times(h.One), leased.Many.times(h.Many)
			passes[i] = append(passes[i], h)
		}
	}
	out := make([]heat, len(all))
	for i, p := range passes {
		out[i] = heat{
			Name: all[i].name, Asked: median(p, func(h heat) float64 { return h.Asked }),
			One: speed{
				median(p, func(h heat) float64 { return h.One.PerSecond }), median(p, func(h heat) float64 { return h.One.Ratio }),
			},
			Many: speed{
				median(p, func(h heat) float64 { return h.Many.PerSecond }), median(p, func(h heat) float64 { return h.Many.Ratio }),
			},
		}
	}
	return out, nil
}

func (b *bench) heatOf(ctx context.Context, e *entry) (heat, error) {
	if e.ready != nil {
		if err := e.ready(ctx); err != nil {
			return heat{}, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	if err := e.must(ctx); err != nil { // so that the server knows the script
		return heat{}, err
	}
	var h heat
	h.One.PerSecond, _ = b.heat(ctx, e, 1)
	h.Many.PerSecond, h.Asked = b.heat(ctx, e, b.callers)
	return h, ctx.Err()
}

// times returns the ratio by which s is greater, or 0 if there is nothing to compare with.
func (s speed) times(other speed) float64 {
	if other.PerSecond == 0 {
		return 0
	}
	return s.PerSecond / other.PerSecond
}

// heat runs callers that ask as often as they can. It returns the decisions per second, and the commands that the
// server has run. The limit is far away, so all requests are allowed unless there was no decision.
func (b *bench) heat(ctx context.Context, e *entry, callers int) (perSecond, asked float64) {
	var decided atomic.Int64
	var all sync.WaitGroup
	before, begin := b.server.processed(ctx), time.Now()
	for range callers {
		all.Go(func() {
			n := int64(0)
			for now := time.Now(); now.Sub(begin) < b.slice; now = time.Now() {
				if allowed, err := e.ask(ctx, now); allowed && err == nil {
					n++
				}
			}
			decided.Add(n)
		})
	}
	all.Wait()
	seconds := time.Since(begin).Seconds()
	return float64(decided.Load()) / seconds, (b.server.processed(ctx) - before) / seconds
}

func heatTable(heats []heat, callers int) table {
	t := table{
		title: "Decisions about one key",
		head: []string{
			"limiter", "1 caller: per second", "leased is faster by", fmt.Sprintf("%d callers: per second", callers), "leased is faster by",
			"commands that Redis runs per second, those in scripts too",
		},
	}
	for _, h := range heats {
		t.add(h.Name, "%s", thousands(h.One.PerSecond), "%.0f×", h.One.Ratio, "%s", thousands(h.Many.PerSecond), "%.0f×", h.Many.Ratio,
			"%s", thousands(h.Asked))
	}
	return t
}

// thousands groups the digits of a whole number.
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
