//go:build !unix && !windows

package stats

import (
	"errors"
	"fmt"
	"time"
)

func processTime() (time.Duration, error) {
	return 0, fmt.Errorf("stats: process: %w", errors.ErrUnsupported)
}
