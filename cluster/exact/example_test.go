package exact_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

func ExampleLimit() {
	client := redistest.Example()
	defer client.Close()

	limit, err := exact.New(&exact.Options{
		Client: client, // a *redis.Client or a *redis.ClusterClient
		Name:   "per tenant",
		Rules: []limiter.Rule{
			limiter.Bucket{Rate: limiter.Per(1, time.Hour), Burst: 2},
			limiter.FixedWindow{Limit: 1000, Calendar: limiter.EveryDay, Name: "daily quota"},
		},
		Nodes: 3, // so without Redis each process allows a third
	})
	if err != nil {
		panic(err)
	}
	gate := spillway.New(limit)
	for range 3 {
		permit, err := gate.Enter(context.Background(), spillway.Request{Key: "tenant 7"})
		fmt.Println(err)
		permit.Done(spillway.Success)
	}
	// Output:
	// <nil>
	// <nil>
	// spillway: token bucket refused: rate exceeded
}

func ExampleLimit_Take() {
	client := redistest.Example()
	defer client.Close()
	limit := spillway.Must(exact.New(&exact.Options{
		Client: client, Name: "exports", Fallback: cluster.RefuseAll,
		Rules: []limiter.Rule{limiter.FixedWindow{Limit: 10, Period: time.Hour}},
	}))

	ctx := context.Background()
	for _, n := range []int{7, 4, 11} {
		r, err := limit.Take(ctx, "tenant 7", n)
		var never *limiter.CostError
		switch {
		case errors.As(err, &never):
			fmt.Println("never more than", never.Max)
		case err != nil:
			fmt.Println(err)
		case !r.Allowed:
			fmt.Println("wait for", r.RetryAfter.Round(time.Hour), "or take", r.Remaining, "says", r.Source)
		default:
			fmt.Println("took", r.Taken, "of", r.Limit)
		}
	}
	// Output:
	// took 7 of 10
	// wait for 1h0m0s or take 3 says redis
	// never more than 10
}

func ExampleLimit_Wait() {
	client := redistest.Example()
	defer client.Close()
	limit := spillway.Must(exact.New(&exact.Options{
		Client: client, Name: "mails", Fallback: cluster.RefuseAll,
		Rules: []limiter.Rule{limiter.Bucket{Rate: limiter.Per(1000, time.Second), Burst: 1}},
	}))
	for range 3 {
		fmt.Println(limit.Wait(context.Background(), "provider", 1))
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
}

func ExampleLimit_SetRule() {
	client := redistest.Example()
	defer client.Close()
	perHour := func(n int) limiter.Rule {
		return limiter.Bucket{Rate: limiter.Per(n, time.Hour)}
	}
	limit := spillway.Must(exact.New(&exact.Options{
		Client: client, Name: "plans", Fallback: cluster.AllowAll, Stored: true,
		Rules: []limiter.Rule{perHour(100)},
	}))

	ctx := context.Background()
	_, _ = limit.Take(ctx, "tenant 7", 40)
	set, err := limit.SetRule(ctx, "tenant 7", perHour(500), exact.AndKeep) // all processes know from now on
	fmt.Println(set, err)
	r, _ := limit.Take(ctx, "tenant 7", 0)
	fmt.Println(r.Remaining, "of", r.Limit)
	// Output:
	// true <nil>
	// 460 of 500
}

func ExampleAllowance() {
	client := redistest.Example()
	defer client.Close()

	daily, err := exact.New(&exact.Options{
		Client:   client,
		Name:     "a day",
		Rules:    []limiter.Rule{limiter.FixedWindow{Limit: 100_000, Calendar: limiter.EveryDay}},
		Fallback: cluster.RefuseAll,
	})
	if err != nil {
		panic(err)
	}
	allowance, err := exact.NewAllowance(&exact.AllowanceOptions{Limit: daily, Nodes: 3})
	if err != nil {
		panic(err)
	}
	defer allowance.Close() // gives back what it has fetched and not spent

	gate := spillway.New(allowance)
	permit, err := gate.Enter(context.Background(), spillway.Request{Key: "tenant 7"})
	fmt.Println(err)
	permit.Done(spillway.Success)
	// Output:
	// <nil>
}

// A request counts for its user, its tenant and the whole service, in one call, or for none of them.
func ExampleTakeAll() {
	client := redistest.Example()
	defer client.Close()

	limit := func(name string, perMinute int) *exact.Limit {
		return spillway.Must(exact.New(&exact.Options{
			Client: client, Name: name, Slot: "api", Fallback: cluster.AllowAll,
			Rules: []limiter.Rule{limiter.FixedWindow{Limit: perMinute, Period: time.Minute}},
		}))
	}
	users, tenants, service := limit("users", 2), limit("tenants", 100), limit("service", 5000)

	for range 3 {
		results, err := exact.TakeAll(context.Background(),
			exact.Claim{Limit: users, Key: "ada"},
			exact.Claim{Limit: tenants, Key: "tenant 7"},
			exact.Claim{Limit: service},
		)
		if err != nil {
			panic(err)
		}
		fmt.Println(results[0].Allowed, results[1].Remaining)
	}
	// Output:
	// true 99
	// true 98
	// false 98
}
