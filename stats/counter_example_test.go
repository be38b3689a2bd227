package stats_test

import (
	"fmt"
	"sync"

	"github.com/spillway-go/spillway/stats"
)

func ExampleCounter() {
	var served stats.Counter
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				served.Add(1)
			}
		})
	}
	wg.Wait()
	fmt.Println(served.Value())
	// Output: 8000
}
