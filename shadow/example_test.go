package shadow_test

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/shadow"
)

func workers(n int) limiter.Limiter { return spillway.Must(limiter.New(limiter.Concurrency{Limit: n})) }

// A Shadow counts what a policy would refuse on live traffic, before it may.
func ExampleNew() {
	dryRun := shadow.New(workers(1))
	gate := spillway.New(dryRun)
	for range 3 {
		_, err := gate.Enter(context.Background(), spillway.Request{})
		fmt.Println(err)
	}
	s := dryRun.Stats()[0]
	fmt.Println("would have refused", s.WouldRefuse, "of", s.Admitted+s.WouldRefuse)
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// would have refused 2 of 3
}

// Two candidates are compared with each other and with what happened, and the better one gets a tenth of the traffic.
func ExampleShadow_Enforce() {
	narrow, wide := workers(1), workers(2)
	trial := shadow.New(narrow, wide)
	_ = trial.SetSLO(100 * time.Millisecond) // what succeeds within it was right to admit

	gate := spillway.New(trial)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var permits []spillway.Permit
	for range 3 {
		permit, _ := gate.Enter(context.Background(), spillway.Request{Arrived: now})
		permits = append(permits, permit)
	}
	for i := range permits {
		permits[i].DoneAt(now.Add(time.Duration(i*80)*time.Millisecond), spillway.Success, 0)
	}
	for _, s := range trial.Stats() {
		fmt.Printf("admitted %d, would refuse %d, regrets %d admitted and %d refused\n", s.Admitted, s.WouldRefuse, s.RegretAdmitted, s.RegretRefused)
	}

	err := trial.Enforce(0, .1)
	fmt.Println(err)
	// Output:
	// admitted 1, would refuse 2, regrets 0 admitted and 1 refused
	// admitted 2, would refuse 1, regrets 0 admitted and 0 refused
	// <nil>
}
