package stats

import (
	"io/fs"
	"os"
	"time"
)

// ProcessCPU returns a source that reads the CPU time of this process alone. The limit is runtime.NumCPU, or on Linux
// the lowest limit of its control groups. It does not see neighbours that use up a shared limit.
func ProcessCPU() CPUSource { return newProcessSource(os.DirFS("/")) }

func newProcessSource(fsys fs.FS) *processSource {
	group := newCgroupSource(fsys)
	group.own = true
	return &processSource{group: group}
}

type processSource struct{ group *cgroupSource }

// ReadCPU reads the process's CPU time.
func (p *processSource) ReadCPU(now time.Time) (CPUReading, error) {
	r, err := p.group.ReadCPU(now)
	if err == nil {
		r.Source = "process"
		return r, nil
	}
	used, err := p.group.process()
	r = CPUReading{Source: "process", Levels: []CPULevel{{Name: "process", Used: used, Limit: float64(p.group.numCPU)}}}
	if p.group.clock != nil {
		r.At = p.group.clock()
	}
	return r, err
}
