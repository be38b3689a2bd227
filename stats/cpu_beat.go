package stats

import (
	"sync"
	"time"
)

// beat is a goroutine that ticks, owned by a sampler. The zero beat is stopped.
type beat struct {
	mu   sync.Mutex
	quit chan struct{}
	done chan struct{}
}

func (b *beat) start(interval time.Duration, tick func(now time.Time)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.quit != nil {
		return
	}
	quit, done := make(chan struct{}), make(chan struct{})
	b.quit, b.done = quit, done
	go func() {
		defer close(done)
		tick(time.Now())
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
				// Not the ticker's time: the tick may have waited long for a processor.
				tick(time.Now())
			}
		}
	}()
}

func (b *beat) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.quit == nil {
		return
	}
	close(b.quit)
	<-b.done
	b.quit, b.done = nil, nil
}
