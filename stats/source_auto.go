package stats

import (
	"io/fs"
	"os"
	"runtime"
	"sync"
	"time"
)

// AutoCPU returns the source that NewCPU uses by default. It reads the control group (CgroupCPU) if the group or a
// parent has a quota or a cpuset smaller than the machine. Otherwise it reads the process alone (ProcessCPU) if the
// process is bound to some of the CPUs. Otherwise it reads the whole machine (HostCPU), or the process if the machine
// cannot be read. It notices within 2 s when a limit is set or lifted. While a limit is known to be set, a failed
// reading is an error; it does not fall back to the host.
func AutoCPU() CPUSource { return newAutoSource(os.DirFS("/")) }

func newAutoSource(fsys fs.FS) *autoSource {
	return &autoSource{
		group: newCgroupSource(fsys), host: newHostSource(fsys), process: newProcessSource(fsys), numCPU: runtime.NumCPU(),
	}
}

type autoSource struct {
	group         *cgroupSource
	host, process CPUSource
	numCPU        int

	mu      sync.Mutex
	limited bool // the group had a limit at the last reading
	hosted  bool // the host has been read
}

// ReadCPU reads whichever source applies.
func (a *autoSource) ReadCPU(now time.Time) (CPUReading, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	group, limits, groupErr := a.group.read(now)
	if groupErr != nil && a.limited {
		return group, groupErr
	}
	if limits.quota {
		a.limited = true
		return group, nil
	}
	host, err := a.host.ReadCPU(now)
	if err != nil && a.hosted {
		return host, err
	}
	if err != nil {
		return a.process.ReadCPU(now)
	}
	a.hosted = true
	online := int(host.Levels[0].Limit)
	if a.limited = limits.cpus > 0 && limits.cpus < online; a.limited {
		return group, nil
	}
	if a.numCPU < online {
		return a.process.ReadCPU(now)
	}
	return host, nil
}
