package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// quiet turns off the client's log, since this program makes Redis unreachable on purpose. The logger may be set only
// once, while no client runs.
var quiet = sync.OnceFunc(func() { redis.SetLogger(silent{}) })

// silent logs nothing.
type silent struct{}

// Printf does nothing.
func (silent) Printf(context.Context, string, ...any) {}

// pause waits for d, and reports whether ctx is still active.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
