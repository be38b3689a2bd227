package adaptive

import (
	"math"
	"time"
)

// AIMD is an [Estimator] that adds one to the limit after each success near the limit, and subtracts a tenth after each
// request that was dropped or took longer than Timeout: additive increase and multiplicative decrease (Chiu and Jain,
// 1989), with the constants of Netflix's limit. It reacts only when requests are late, so set Timeout near the time that
// clients wait. The zero AIMD is ready to use; it belongs to one [Limit].
type AIMD struct {
	// Timeout is the latency beyond which a success counts as dropped. If Timeout is 0, it is 5 s.
	Timeout time.Duration
}

const (
	aimdBackoff = 0.9
	aimdTimeout = 5 * time.Second
)

// Step returns the limit after one more sample.
func (a *AIMD) Step(limit float64, s Sample) float64 {
	timeout := a.Timeout
	if timeout == 0 {
		timeout = aimdTimeout
	}
	return stepAIMD(limit, s, timeout)
}

// stepAIMD returns the limit after one sample.
func stepAIMD(limit float64, s Sample, timeout time.Duration) float64 {
	switch {
	case s.Dropped || s.Latency > timeout:
		return math.Floor(limit * aimdBackoff)
	case float64(2*s.InFlight) >= limit:
		return limit + 1
	}
	return limit
}
