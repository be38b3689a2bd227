//go:build unix

package stats

import (
	"fmt"
	"syscall"
	"time"
)

// processTime returns the CPU time that all threads of this process have used.
func processTime() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("stats: process: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
