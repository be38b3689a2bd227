package call

import "sync"

const (
	// PerPipeline is the number of commands in one call: some 5 ms of Redis.
	PerPipeline = 128
	// MaxLanes is the number of calls at a time, which matters where Redis is far away.
	MaxLanes = 8
)

// Lanes run functions, a few at a time.
type Lanes struct {
	running sync.WaitGroup
	room    chan struct{}
}

// Do runs f in a goroutine, when there is room for it.
func (l *Lanes) Do(f func()) {
	if l.room == nil {
		l.room = make(chan struct{}, MaxLanes)
	}
	l.room <- struct{}{}
	l.running.Go(func() {
		defer func() { <-l.room }()
		f()
	})
}

// Wait returns when all functions have ended.
func (l *Lanes) Wait() { l.running.Wait() }
