package main

import (
	"syscall"
	"time"
	"unsafe"
)

// cpu returns the CPU time that the process has used so far. Its clock counts nanoseconds, whereas /proc counts ticks of 10 ms.
func (c *child) cpu() (time.Duration, error) {
	const ofProcess = 2 // CPUCLOCK_SCHED
	var used syscall.Timespec
	clock := uintptr(^c.cmd.Process.Pid<<3 | ofProcess)
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&used)), 0); err != 0 {
		return 0, err
	}
	return time.Duration(used.Nano()), nil
}
