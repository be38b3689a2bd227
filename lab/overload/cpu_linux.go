package overload

import (
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// Clocks of clock_gettime(2) that package syscall does not name. getrusage would not do: it counts in ticks.
const (
	clockProcessCPU = 2
	clockThreadCPU  = 3
)

func threadCPU() time.Duration { return clock(clockThreadCPU) }

func processCPU() time.Duration { return clock(clockProcessCPU) }

func clock(id uintptr) time.Duration {
	var t syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(t.Nano())
}

// Renice sets the niceness of every thread of this process; threads and processes made later inherit it.
func Renice(nice int) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			continue
		}
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, tid, nice); err != nil {
			return err
		}
	}
	return nil
}
