package stats

import (
	"fmt"
	"syscall"
	"time"
)

// processTime returns the CPU time that all threads of this process have used.
func processTime() (time.Duration, error) {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0, fmt.Errorf("stats: process: %w", err)
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(self, &created, &exited, &kernel, &user); err != nil {
		return 0, fmt.Errorf("stats: process: %w", err)
	}
	return ticks(kernel) + ticks(user), nil
}

// ticks reads a duration, which Windows keeps in units of 100 ns.
func ticks(t syscall.Filetime) time.Duration {
	return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
}
