package stats

import (
	"io/fs"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/spillway-go/spillway/internal/cgroup"
)

// limitsInterval is how often limits, which change rarely, are read again.
const limitsInterval = 2 * time.Second

// limitsDue reports whether to read limits again that were read at *last, and then sets *last to now.
func limitsDue(last *time.Time, now time.Time) bool {
	if age := now.Sub(*last); !last.IsZero() && age >= 0 && age < limitsInterval {
		return false
	}
	*last = now
	return true
}

// CgroupCPU returns a source that reads the Linux control group of this process, version 1 or 2.
//
// The whole group counts as used CPU time, including sidecars in it. The limit is the lowest of the
// group's quota, its cpuset and runtime.NumCPU. Each parent group with a quota is a separate level, with the CPU time
// of all its members: when they use up the quota together, this process is stopped as well. If there is no quota, the
// group's usage is measured against its CPUs. The limits, and whether the process has been moved to another group, are
// looked up again every 2 s.
//
// If the cpuacct controller of version 1 does not count the process's group alone, the process's own CPU time is used
// instead. If there are no control groups, every reading fails.
func CgroupCPU() CPUSource { return newCgroupSource(os.DirFS("/")) }

// processSuffix marks the levels whose Used is the process's own.
const processSuffix = " (process)"

// cgroupSource reads a control group, and reads missing figures from the process.
type cgroupSource struct {
	fsys    fs.FS
	numCPU  int
	process func() (time.Duration, error)
	clock   func() time.Time // nil: a reading has no time of its own
	own     bool             // use the process's own time at all levels

	mu      sync.Mutex
	group   *cgroup.Group // nil: to be found
	err     error         // why it was not found at checked
	checked time.Time     // when the limits were read, or the group was looked for
	levels  []cgroup.Level
}

func newCgroupSource(fsys fs.FS) *cgroupSource {
	return &cgroupSource{fsys: fsys, numCPU: runtime.NumCPU(), process: processTime, clock: time.Now}
}

// ReadCPU reads the group's counters.
func (c *cgroupSource) ReadCPU(now time.Time) (CPUReading, error) {
	r, _, err := c.read(now)
	return r, err
}

// groupLimits says which limits come from control groups.
type groupLimits struct {
	quota bool // at some level
	cpus  int  // size of the cpuset, 0 if there is none
}

// read also reports which limits the control groups set.
func (c *cgroupSource) read(now time.Time) (r CPUReading, limits groupLimits, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refreshLimits(now); err != nil {
		return CPUReading{}, limits, err
	}
	if c.levels, err = c.group.Levels(c.levels[:0]); err != nil {
		c.forget() // it may have been removed: look it up again next time
		return CPUReading{}, limits, err
	}
	r = CPUReading{Source: "cgroup v2", Levels: make([]CPULevel, len(c.levels))}
	if c.group.Version() == 1 {
		r.Source = "cgroup v1"
	}
	if c.clock != nil {
		r.At = c.clock()
	}
	limits.cpus = c.group.CPUs()
	for i := range c.levels {
		if r.Levels[i], err = c.level(&c.levels[i], i == 0); err != nil {
			return CPUReading{}, limits, err
		}
		limits.quota = limits.quota || c.levels[i].Quota > 0
	}
	return r, limits, nil
}

// level turns a group's counters into a level.
func (c *cgroupSource) level(g *cgroup.Level, own bool) (CPULevel, error) {
	l := CPULevel{
		Name: g.Path, Used: g.Used, Limit: g.Quota,
		Period: g.Period, Periods: g.Periods, ThrottledPeriods: g.Throttled, Throttled: g.Stopped,
	}
	if cpus := c.cpus(); l.Limit == 0 || own && l.Limit > cpus {
		l.Limit = cpus
	}
	if g.HasUsed && !c.own {
		return l, nil
	}
	used, err := c.process()
	l.Name, l.Used = l.Name+processSuffix, used
	return l, err
}

// cpus is how many CPUs the process may run on.
func (c *cgroupSource) cpus() float64 {
	n := c.numCPU
	if set := c.group.CPUs(); set > 0 {
		n = min(n, set)
	}
	return float64(n)
}

func (c *cgroupSource) refreshLimits(now time.Time) error {
	if !limitsDue(&c.checked, now) {
		return c.err
	}
	if c.group != nil && !c.group.Moved() {
		err := c.group.ReadLimits()
		if err != nil {
			c.forget()
		}
		return err
	}
	c.forget()
	c.checked = now
	c.group, c.err = cgroup.Find(c.fsys)
	return c.err
}

// forget makes the next reading look for the group again.
func (c *cgroupSource) forget() {
	if c.group != nil {
		c.group.Close()
	}
	c.group, c.err, c.checked = nil, nil, time.Time{}
}
