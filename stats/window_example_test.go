package stats_test

import (
	"fmt"
	"log"
	"time"

	"github.com/spillway-go/spillway/stats"
)

func ExampleWindow() {
	latency, err := stats.NewWindow(4*time.Second, 4)
	if err != nil {
		log.Fatal(err)
	}
	start := time.Unix(0, 0) // any clock will do: here a simulated one
	latency.Add(start, int64(20*time.Millisecond))
	latency.Add(start.Add(1500*time.Millisecond), int64(30*time.Millisecond))
	latency.Add(start.Add(1700*time.Millisecond), int64(50*time.Millisecond))

	now := start.Add(3 * time.Second)
	for b := range latency.Buckets(now) {
		fmt.Println(b.Start.Sub(start), b.Count, time.Duration(b.Sum/max(b.Count, 1)), time.Duration(b.Max))
	}
	now = now.Add(time.Hour)
	fmt.Println("an hour later:", latency.Total(now).Count)
	// Output:
	// 0s 1 20ms 20ms
	// 1s 2 40ms 50ms
	// 2s 0 0s 0s
	// 3s 0 0s 0s
	// an hour later: 0
}

func ExampleWindow_Complete() {
	served, err := stats.NewWindow(3*time.Second, 3)
	if err != nil {
		log.Fatal(err)
	}
	now := time.Unix(0, 0)
	for n := range int64(4) {
		served.Add(now, 10+n)
		now = now.Add(time.Second)
	}
	// The bucket that has just begun would make the rate look low.
	for b := range served.Complete(now) {
		fmt.Println(b.Sum)
	}
	// Output:
	// 12
	// 13
}

// A Window of failures: 1 for a failure, 0 for a success.
func ExampleWindow_Total() {
	outcomes, err := stats.NewWindow(10*time.Second, 10)
	if err != nil {
		log.Fatal(err)
	}
	now := time.Unix(0, 0)
	for _, failed := range []int64{0, 1, 0, 0} {
		outcomes.Add(now, failed)
	}
	total := outcomes.Total(now)
	fmt.Println(total.Count, total.Sum, float64(total.Sum)/float64(total.Count))
	// Output: 4 1 0.25
}
