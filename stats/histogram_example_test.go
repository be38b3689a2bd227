package stats_test

import (
	"fmt"
	"log"
	"time"

	"github.com/spillway-go/spillway/stats"
)

func ExampleHistogram() {
	latency, err := stats.NewHistogram(nil) // the last 10 seconds
	if err != nil {
		log.Fatal(err)
	}
	now := time.Unix(0, 0) // any clock will do: here a simulated one
	for i := range 1000 {
		latency.Record(now, time.Duration(i+1)*time.Millisecond)
	}
	for _, d := range latency.Quantiles(now, 0.5, 0.99) {
		fmt.Printf("%.1f s\n", d.Seconds()) // each is within 1.6 % of the true value
	}
	fmt.Println(latency.Quantile(now.Add(time.Minute), 0.5))
	// Output:
	// 0.5 s
	// 1.0 s
	// 0s
}
