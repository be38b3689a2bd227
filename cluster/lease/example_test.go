package lease_test

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/cluster/lease"
	"github.com/spillway-go/spillway/limiter"
)

func ExampleLimit() {
	client := redistest.Example()
	defer client.Close()

	quota, err := lease.New(&lease.Options{
		Client: client,
		Name:   "per route",
		Rule:   limiter.Bucket{Rate: limiter.Per(20_000, time.Second)}, // of all processes together
		Nodes:  3,                                                      // until Redis has reported the number
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
