package cluster_test

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

func ExampleQuota() {
	client := redistest.Example()
	defer client.Close()

	quota, err := cluster.NewQuota(&cluster.QuotaOptions{
		Client: client,
		Name:   "per route",
		Rule:   limiter.Bucket{Rate: limiter.Per(20_000, time.Second)}, // of all processes together
		Nodes:  3,                                                      // until Redis has told how many there are
	})
	if err != nil {
		panic(err)
	}
	defer quota.Close() // gives its share to the others at once

	gate := spillway.New(quota)
	permit, err := gate.Enter(context.Background(), spillway.Request{Key: "GET /search"})
	fmt.Println(err)
	permit.Done(spillway.Success)
	// Output:
	// <nil>
}

func ExampleAllowance() {
	client := redistest.Example()
	defer client.Close()

	daily, err := cluster.NewLimit(&cluster.LimitOptions{
		Client:   client,
		Name:     "a day",
		Rules:    []limiter.Rule{limiter.FixedWindow{Limit: 100_000, Calendar: limiter.EveryDay}},
		Fallback: cluster.RefuseAll,
	})
	if err != nil {
		panic(err)
	}
	allowance, err := cluster.NewAllowance(&cluster.AllowanceOptions{Limit: daily, Nodes: 3})
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
