package deadline_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/deadline"
)

// A report takes 80 ms. A caller who waits for 50 ms is refused at once.
func ExampleNew() {
	late := spillway.Must(deadline.New(nil))
	gate := spillway.New(late)
	report := func(timeout time.Duration, arrived time.Time) error {
		permit, err := gate.Enter(context.Background(), spillway.Request{Route: "GET /report", Timeout: timeout, Arrived: arrived})
		if err == nil {
			permit.DoneAt(arrived.Add(80*time.Millisecond), spillway.Success, 0)
		}
		return err
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 20 {
		_ = report(time.Second, now)
	}
	err := report(50*time.Millisecond, now)
	fmt.Println(err)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	fmt.Println(late.Latency("GET /report"))
	// Output:
	// spillway: deadline refused: deadline too near
	// true
	// 80ms true
}
