// Package work is the work of the examples' handlers: it takes time.
package work

import (
	"context"
	"time"
)

// For waits for the duration in text, such as 50ms, or until ctx is done, and then returns its error. A text that is
// not a duration counts as 0.
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
