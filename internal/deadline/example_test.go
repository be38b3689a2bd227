package deadline_test

import (
	"fmt"
	"time"

	"github.com/spillway-go/spillway/internal/deadline"
)

func ExampleEstimator() {
	latencies, err := deadline.New(nil)
	if err != nil {
		panic(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 100 {
		latencies.Observe("/report", 80*time.Millisecond, now)
	}
	fmt.Println(latencies.Late("/report", now, 50*time.Millisecond))
	fmt.Println(latencies.Late("/report", now, 100*time.Millisecond))
	// Output:
	// true false 1
	// false false 1
}
