package stats

import (
	"os"
	"time"
)

// HostCPU returns a source that reads the CPU time of the whole machine, including neighbours, against all its CPUs.
// Time that a hypervisor gave to others (steal) counts as used; waiting for disks does not.
//
// On Linux it reads /proc/stat, elsewhere it asks gopsutil. On macOS gopsutil needs cgo; without it every reading fails.
func HostCPU() CPUSource { return newHostSource(os.DirFS("/")) }

// busyCPU is a machine's CPU time and number of CPUs.
type busyCPU struct {
	used time.Duration
	cpus int
}

func (b busyCPU) reading(at time.Time) CPUReading {
	return CPUReading{
		Source: "host", At: at,
		Levels: []CPULevel{{Name: "host", Used: b.used, Limit: float64(b.cpus)}},
	}
}
