package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
)

// A Workers is the smallest useful policy: it admits as many requests at once as there are workers.
type Workers struct {
	free chan struct{}
}

func NewWorkers(n int) *Workers {
	w := &Workers{free: make(chan struct{}, n)}
	for range n {
		w.free <- struct{}{}
	}
	return w
}

// A Rejection is made beforehand and shared, so that refusing costs nothing.
var errBusy = &spillway.Rejection{Policy: "workers", Reason: "all busy", RetryAfter: time.Second}

func (w *Workers) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	select {
	case <-w.free:
		return 0, nil
	default:
		return 0, errBusy
	}
}

func (w *Workers) Done(spillway.Request, spillway.Ticket, spillway.Result) { w.free <- struct{}{} }

// A policy has two methods. This one limits how many requests run at once.
func ExamplePolicy() {
	var p spillway.Policy = NewWorkers(1)
	gate := spillway.New(p)
	ctx := context.Background()

	first, _ := gate.Enter(ctx, spillway.Request{})
	_, err := gate.Enter(ctx, spillway.Request{})
	fmt.Println(err)

	first.Done(spillway.Success)
	_, err = gate.Enter(ctx, spillway.Request{})
	fmt.Println(err)
	// Output:
	// spillway: workers refused: all busy
	// <nil>
}

func ExampleGate() {
	gate := spillway.New(NewWorkers(2), NewWorkers(1)) // asked in this order
	serve := func(ctx context.Context, name string, work func()) error {
		permit, err := gate.Enter(ctx, spillway.Request{Key: name})
		if err != nil {
			return err // at once: no work was done
		}
		defer permit.Done(spillway.Failure) // covers panics; the first Done wins
		work()
		permit.Done(spillway.Success)
		return nil
	}
	ctx := context.Background()
	fmt.Println("outer:", serve(ctx, "alice", func() {
		fmt.Println("inner:", serve(ctx, "bob", func() {}))
	}))
	s := gate.Stats()
	fmt.Printf("%d admitted, %d succeeded, %d in flight, %d rejected\n", s.Admitted, s.Succeeded, s.InFlight, s.Refused)
	for _, r := range s.ByReason {
		fmt.Printf("policy %d, %s: %s: %d\n", r.Index, r.Policy, r.Reason, r.Count)
	}
	// Output:
	// inner: spillway: workers refused: all busy
	// outer: <nil>
	// 1 admitted, 1 succeeded, 0 in flight, 1 rejected
	// policy 1, workers: all busy: 1
}

func ExampleDo() {
	gate := spillway.New(NewWorkers(1))
	ctx := context.Background()
	err := spillway.Do(ctx, gate, spillway.Request{}, func(ctx context.Context) error {
		fmt.Println("working")
		return spillway.Do(ctx, gate, spillway.Request{}, func(context.Context) error {
			return errors.New("never reached")
		})
	})
	fmt.Println(err)
	fmt.Println("ignored, since a refusal is nobody's failure:", gate.Stats().Ignored)
	// Output:
	// working
	// spillway: workers refused: all busy
	// ignored, since a refusal is nobody's failure: 1
}

func ExampleRejection() {
	gate := spillway.New(NewWorkers(0))
	_, err := gate.Enter(context.Background(), spillway.Request{})
	fmt.Println(errors.Is(err, spillway.ErrRejected))

	if rejection := spillway.RejectionOf(err); rejection != nil {
		status := 503
		if rejection.OverQuota {
			status = 429
		}
		fmt.Println(status, rejection.Policy, rejection.Reason, rejection.RetryAfter)
	}
	// Output:
	// true
	// 503 workers all busy 1s
}

// Priorities have gaps, for levels of one's own.
func ExamplePriority() {
	const checkout = spillway.Critical + 1
	for _, p := range []spillway.Priority{spillway.Sheddable, spillway.Normal, spillway.Critical, checkout} {
		fmt.Println(int(p), p)
	}
	// Output:
	// -4 sheddable
	// 0 normal
	// 4 critical
	// 5 critical+1
}

// Time is data, so a gate runs in a test or a simulation as it runs in production.
func ExamplePermit_DoneAt() {
	gate := spillway.New(slow{})
	start := time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)
	permit, _ := gate.Enter(context.Background(), spillway.Request{Arrived: start})
	permit.DoneAt(start.Add(3*time.Second), spillway.Success, 0)
	// Output:
	// success after 3s
}

// A slow prints how requests went.
type slow struct{}

func (slow) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, nil }

func (slow) Done(_ spillway.Request, _ spillway.Ticket, res spillway.Result) {
	fmt.Println(res.Outcome, "after", res.Latency)
}

func ExampleMust() {
	newLimit := func(n int) (*Workers, error) {
		if n < 1 {
			return nil, fmt.Errorf("workers: n must be at least 1, got %d", n)
		}
		return NewWorkers(n), nil
	}
	gate := spillway.New(spillway.Must(newLimit(4)))
	fmt.Println(gate.Stats().InFlight)
	// Output:
	// 0
}
