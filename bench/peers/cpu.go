package peers

import (
	"sync/atomic"
	"time"
	_ "unsafe" // for the names below

	"github.com/spillway-go/spillway/stats"
)

// These are the CPU usages of go-zero and aegis, in thousandths. Both packages keep theirs in a variable that only
// their own samplers write, and offer no way to set it: hence these names. Only functions of sync/atomic use the
// variables here, as in those packages.

//go:linkname goZeroCPU github.com/zeromicro/go-zero/core/stat.cpuUsage
var goZeroCPU int64

//go:linkname aegisCPU github.com/go-kratos/aegis/ratelimit/bbr.gCPU
var aegisCPU int64

// trueCPU returns Spillway's own reading of the CPU, refreshed by its callers: as often as by go-zero, twice as often
// as by aegis, and smoothed as much as by both.
func trueCPU() (func() (float64, float64), error) {
	sensor, err := stats.NewCPU(&stats.CPUOptions{Interval: 250 * time.Millisecond, Beta: 0.95})
	if err != nil {
		return nil, err
	}
	return func() (float64, float64) { return readings(sensor, time.Now()) }, nil
}

func readings(sensor *stats.Sensor[stats.CPUSample], now time.Time) (raw, smoothed float64) {
	s := sensor.Sample(now)
	if s.Err != nil {
		return 0, 0
	}
	return s.Usage, s.Smoothed
}

func raw(raw, _ float64) float64 { return raw }

func smoothed(_, smoothed float64) float64 { return smoothed }

// fed returns a peer whose variable is kept at one of the true readings.
func fed(peer func(Facts) (Admission, error), variable *int64, which func(raw, smoothed float64) float64) func(Facts) (Admission, error) {
	return func(f Facts) (Admission, error) {
		a, err := peer(f)
		admit := a.Admit
		a.Admit = func() (func(), bool) {
			if permille := int64(1000*which(f.CPU()) + 0.5); atomic.LoadInt64(variable) != permille {
				atomic.StoreInt64(variable, permille)
			}
			return admit()
		}
		return a, err
	}
}
