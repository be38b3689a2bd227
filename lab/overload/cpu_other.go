//go:build !linux

package overload

import (
	"errors"
	"time"
)

// Without a clock for the thread, the calibration uses the wall clock and keeps its fastest trial.
func threadCPU() time.Duration { return time.Duration(time.Now().UnixNano()) }

func processCPU() time.Duration { return 0 }

// Renice sets the niceness of every thread of this process; threads and processes made later inherit it.
func Renice(int) error { return errors.ErrUnsupported }
