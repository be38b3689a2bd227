package main

import (
	"runtime"
	"sync"
)

// parallel runs work for each i below n on all processors, and calls done for each success, one at a time. It returns
// the first error.
func parallel(n int, work func(i int) error, done func(i int) error) error {
	var (
		mu    sync.Mutex
		next  int
		first error
		group sync.WaitGroup
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= n && first == nil
	}
	for range min(n, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				err := work(i)
				mu.Lock()
				if err == nil {
					err = done(i)
				}
				if first == nil {
					first = err
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return first
}
