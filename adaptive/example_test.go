package adaptive_test

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
)

// A limit in front of a backend that needs no sensor.
func Example() {
	limit, err := adaptive.New(&adaptive.Options{Estimator: &adaptive.Vegas{}, Max: 200})
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := spillway.New(limit)
	permit, err := gate.Enter(context.Background(), spillway.Request{})
	if err != nil {
		return // as many in flight as the limit
	}
	defer permit.Done(spillway.Failure)
	fmt.Println("limit", limit.Stats().Limit, "in flight", limit.Stats().InFlight)
	permit.Done(spillway.Success)
	// Output: limit 20 in flight 1
}

func ExampleLimit_Tune() {
	limit := spillway.Must(adaptive.New(nil))
	o := limit.Options()
	o.Max = 10                                      // the backend has ten connections
	o.MaxBaseline = 300 * time.Millisecond          // a longer mean latency is never healthy
	o.Estimator = &adaptive.Gradient2{Tolerance: 2} // begins from the present limit
	fmt.Println(limit.Tune(o), limit.Stats().Limit, limit.Stats().Ceiling)
	// Output: <nil> 10 300ms
}

// feed gives an Estimator n samples of a latency, with as many requests in flight as the limit.
func feed(e adaptive.Estimator, limit float64, n int, latency time.Duration) float64 {
	for range n {
		limit = e.Step(limit, adaptive.Sample{Latency: latency, InFlight: int(limit)})
	}
	return limit
}

func ExampleGradient2() {
	e := &adaptive.Gradient2{}
	calm := feed(e, 20, 100, 10*time.Millisecond)
	slow := feed(e, calm, 20, 40*time.Millisecond)
	fmt.Println(calm > 90, slow < 20)
	// Output: true true
}

func ExampleVegas() {
	e := &adaptive.Vegas{}
	calm := feed(e, 20, 10, 10*time.Millisecond)
	slow := feed(e, calm, 50, 40*time.Millisecond)
	fmt.Println(calm, slow)
	// Output: 74 24
}

func ExampleAIMD() {
	e := &adaptive.AIMD{Timeout: time.Second}
	calm := feed(e, 20, 10, 10*time.Millisecond)
	late := feed(e, calm, 1, 2*time.Second)
	fmt.Println(calm, late)
	// Output: 30 27
}

// A limit of your own: never more than one request beyond those that were quick.
type patient struct{}

func (patient) Step(limit float64, s adaptive.Sample) float64 {
	if s.Latency > 100*time.Millisecond {
		return limit - 1
	}
	return limit + 1
}

func ExampleEstimator() {
	limit := spillway.Must(adaptive.New(&adaptive.Options{Estimator: patient{}}))
	gate := spillway.New(limit)
	permit, err := gate.Enter(context.Background(), spillway.Request{})
	if err != nil {
		return
	}
	permit.DoneAt(permit.Arrived().Add(time.Second), spillway.Success, 0)
	fmt.Println(limit.Stats().Limit)
	// Output: 19
}
