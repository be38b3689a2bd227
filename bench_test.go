package spillway_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shadow"
)

// A counting is a policy that does next to nothing, so that the gate is what is measured.
type counting struct {
	refuses bool
}

func (c *counting) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	if c.refuses {
		return 0, errFull
	}
	return 0, nil
}

func (c *counting) Done(spillway.Request, spillway.Ticket, spillway.Result) {}

func countings(n int) []spillway.Policy {
	policies := make([]spillway.Policy, n)
	for i := range policies {
		policies[i] = &counting{}
	}
	return policies
}

// bothWays runs f serially and in parallel.
func bothWays(b *testing.B, name string, f func()) {
	b.Run(name+"/serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f()
		}
	})
	b.Run(name+"/parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				f()
			}
		})
	})
}

// BenchmarkTwoClockReads is the yardstick: what a request's arrival and latency cost at least.
func BenchmarkTwoClockReads(b *testing.B) {
	bothWays(b, "clock", func() {
		if time.Since(time.Now()) < 0 {
			panic("the clock went backwards")
		}
	})
}

func BenchmarkGateAdmit(b *testing.B) {
	ctx := context.Background()
	for _, n := range []int{0, 1, 4, 8} {
		gate := spillway.New(countings(n)...)
		bothWays(b, fmt.Sprintf("policies=%d", n), func() {
			p, err := gate.Enter(ctx, spillway.Request{})
			if err != nil {
				panic(err)
			}
			p.Done(spillway.Success)
		})
	}
}

// BenchmarkGateAdmitAt is without the clock.
func BenchmarkGateAdmitAt(b *testing.B) {
	ctx := context.Background()
	for _, n := range []int{1, 4} {
		gate := spillway.New(countings(n)...)
		bothWays(b, fmt.Sprintf("policies=%d", n), func() {
			p, err := gate.Enter(ctx, spillway.Request{Arrived: base})
			if err != nil {
				panic(err)
			}
			p.DoneAt(base, spillway.Success, 0)
		})
	}
}

func BenchmarkGateRefuse(b *testing.B) {
	ctx := context.Background()
	for _, n := range []int{1, 4, 8} {
		gate := spillway.New(append(countings(n-1), &counting{refuses: true})...)
		bothWays(b, fmt.Sprintf("policies=%d", n), func() {
			if _, err := gate.Enter(ctx, spillway.Request{}); err == nil {
				panic("admitted")
			}
		})
	}
}

func BenchmarkShadow(b *testing.B) {
	ctx := context.Background()
	gate := spillway.New(shadow.New(&counting{refuses: true}))
	bothWays(b, "refused", func() {
		p, err := gate.Enter(ctx, spillway.Request{})
		if err != nil {
			panic(err)
		}
		p.Done(spillway.Success)
	})
}

func BenchmarkDo(b *testing.B) {
	ctx := context.Background()
	gate := spillway.New(countings(1)...)
	bothWays(b, "policies=1", func() {
		if err := spillway.Do(ctx, gate, spillway.Request{}, func(context.Context) error { return nil }); err != nil {
			panic(err)
		}
	})
}

func BenchmarkGateStats(b *testing.B) {
	gate := spillway.New(&counting{refuses: true})
	_, _ = gate.Enter(context.Background(), spillway.Request{})
	bothWays(b, "stats", func() { _ = gate.Stats() })
}
