package call

import (
	"slices"
	"sync"
)

const (
	// PerPipeline is the number of commands in one call: about 5 ms of work for Redis.
	PerPipeline = 128
	// MaxLanes is the number of calls at a time, which matters where Redis is far away.
	MaxLanes = 8
)

// Pipelines calls send with parts of at most PerPipeline of all, in up to MaxLanes goroutines at a time, and returns when all
// of them have ended.
func Pipelines[T any](all []T, send func(part []T)) {
	var running sync.WaitGroup
	room := make(chan struct{}, MaxLanes)
	for part := range slices.Chunk(all, PerPipeline) {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			send(part)
		})
	}
	running.Wait()
}
