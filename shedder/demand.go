package shedder

import (
	"math"

	"github.com/spillway-go/spillway/shedder/internal/law"
	"github.com/spillway-go/spillway/stats"
)

// demandSpan is the time in seconds over which rates of requests are averaged for the demand. A shorter one would follow
// single bursts, and autoscalers look every 15 s.
const demandSpan = 2

// maxDemand bounds the demand while next to nothing passes.
const maxDemand = 100

// demand compares the requests with what the process can carry.
type demand struct{ offered, passed float64 } // per second, averaged

// observe returns the demand after a tick. The caller holds mu.
func (d *demand) observe(r *law.Reading, cpu *stats.CPUSample, v law.Verdict, threshold float64) float64 {
	if r.Dt > 0 {
		weight := -math.Expm1(-r.Dt / demandSpan)
		d.offered += ((r.Admitted+r.Refused)/r.Dt - d.offered) * weight
		d.passed += (r.Admitted/r.Dt - d.passed) * weight
	}
	most := 0.0
	if cpu.Err == nil && threshold > 0 {
		most = cpu.Smoothed / threshold
	}
	if v.Reason != law.Calm && v.Limit > 0 && !math.IsInf(v.Limit, 0) {
		most = max(most, r.InFlight/v.Limit)
	}
	if refused := d.offered - d.passed; refused > d.offered/1000 {
		most = max(most, d.offered/max(d.passed, d.offered/maxDemand))
	}
	return min(most, maxDemand)
}
