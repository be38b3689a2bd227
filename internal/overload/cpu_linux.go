package overload

import (
	"os"
	"strconv"
	"syscall"
	"time"
)

const rusageThread = 1 // RUSAGE_THREAD, absent from package syscall

func threadCPU() time.Duration { return rusage(rusageThread) }

func processCPU() time.Duration { return rusage(syscall.RUSAGE_SELF) }

func rusage(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// renice sets the niceness of every thread of this process; threads made later inherit it.
func renice(nice int) error {
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
