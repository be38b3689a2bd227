//go:build !linux

package stats

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"time"

	"github.com/shirou/gopsutil/v3/cpu"
)

func newHostSource(fs.FS) CPUSource { return hostSource{} }

// hostSource asks gopsutil.
type hostSource struct{}

// ReadCPU reads the machine's counters.
func (hostSource) ReadCPU(time.Time) (CPUReading, error) {
	times, err := cpu.Times(false)
	if err == nil && len(times) == 0 {
		err = errors.ErrUnsupported
	}
	if err != nil {
		return CPUReading{}, fmt.Errorf("stats: host: %w", err)
	}
	t := &times[0]
	busy := t.User + t.System + t.Nice + t.Irq + t.Softirq + t.Steal
	used := time.Duration(busy * float64(time.Second))
	return busyCPU{used: used, cpus: runtime.NumCPU()}.reading(time.Now()), nil
}
