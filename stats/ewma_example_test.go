package stats_test

import (
	"fmt"
	"log"

	"github.com/spillway-go/spillway/stats"
)

func ExampleEWMA() {
	usage, err := stats.NewEWMA(0.95)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(usage.Value())
	usage.Update(0.4) // the first sample seeds it
	fmt.Println(usage.Value())
	usage.Update(0.8)
	fmt.Printf("%.2f\n", usage.Value())
	// Output:
	// 0
	// 0.4
	// 0.42
}
