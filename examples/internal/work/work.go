// Package work is what the handlers of the examples do: it takes time.
package work

import (
	"context"
	"time"
)

// For waits for the duration that text tells, such as 50ms, or until ctx is done, and then returns its error. A text that
// tells no duration is none.
func For(ctx context.Context, text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil //nolint:nilerr // no duration
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
