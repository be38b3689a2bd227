package stats_test

import (
	"context"
	"fmt"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/stats"
)

func ExampleEach() {
	pool := spillway.Must(limiter.New(limiter.Concurrency{Name: "pool", Limit: 1}))
	orders, search := spillway.New(pool), spillway.New(pool) // a policy that two gates share
	for range 2 {
		_, _ = orders.Enter(context.Background(), spillway.Request{})
	}

	for name, m := range stats.Each(map[string]stats.Source{"orders": orders, "search": search}) {
		if m.Value > 0 {
			fmt.Println(name, m.Name, m.Labels, m.Value)
		}
	}
	// Output:
	// orders spillway.gate.requests [{result admitted}] 1
	// orders spillway.gate.requests [{result refused}] 1
	// orders spillway.gate.in_flight [] 1
	// orders spillway.gate.refusals [{policy pool} {reason limit reached}] 1
	// orders spillway.limiter.requests [{policy pool} {result refused}] 1
	// orders spillway.limiter.refusals [{policy pool} {reason limit reached}] 1
	// orders spillway.limiter.in_flight [{policy pool}] 1
}
