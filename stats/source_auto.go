package stats

import (
	"io/fs"
	"os"
	"runtime"
	"sync"
	"time"
)

// AutoCPU returns the source that NewCPU uses by default. It reads the control group (CgroupCPU) if that, or one above
// it, has a quota or a cpuset smaller than the machine; else the process alone (ProcessCPU) if it is bound to some of the
// CPUs; else the whole machine (HostCPU), or the process if the machine cannot be read. A limit that is set or lifted while
// running is noticed within 2 s. While a limit is known to be set, a reading that fails is an error: the host
// is no stand-in for it.
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
	limited bool // the group had a limit when it was read last
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
