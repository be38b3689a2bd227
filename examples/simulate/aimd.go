package main

import (
	"math"
	"time"
)

const (
	aimdMin     = 20
	aimdMax     = 200
	aimdBackoff = 0.9
	aimdTimeout = 5 * time.Second // a request that takes longer counts as dropped
)

// stepAIMD returns limit after one sample: one more after each success that tried it, a tenth less after each request that
// was dropped. Additive increase and multiplicative decrease are Chiu and Jain's; the constants are those of Netflix' limit.
func stepAIMD(limit float64, x sample) float64 {
	switch {
	case x.dropped || x.latency > aimdTimeout:
		limit = math.Floor(limit * aimdBackoff)
	case float64(2*x.inFlight) >= limit:
		limit++
	}
	return min(max(limit, aimdMin), aimdMax)
}
