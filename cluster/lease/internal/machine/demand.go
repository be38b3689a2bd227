package machine

import (
	"math"
	"time"
)

// A Demand estimates a rate from counts. It follows significant rises at once and significant falls soon, and averages
// noise.
type Demand struct {
	rate float64 // tokens per second
	seen bool
}

// sigmas is the number of standard deviations of a Poisson count that is taken for noise.
const sigmas = 3

// Observe adds n requested tokens over dt; the estimate is renewed every interval.
func (d *Demand) Observe(n float64, dt, interval time.Duration) {
	if dt <= 0 {
		return
	}
	x := n / dt.Seconds()
	if !d.seen {
		d.rate, d.seen = x, true
		return
	}
	steps := float64(dt) / float64(interval)
	switch noise := d.noise(dt); {
	case x > d.rate+noise:
		d.rate = x
	case x < d.rate-noise:
		d.rate = x + (d.rate-x)*math.Exp2(-4*steps) // a sixteenth is left after an interval
	default:
		d.rate += (x - d.rate) * (1 - math.Exp2(-steps/2))
	}
}

// noise returns how far a count over dt may be off by chance, as a rate.
func (d *Demand) noise(dt time.Duration) float64 {
	return sigmas * math.Sqrt(max(d.rate*dt.Seconds(), 1)) / dt.Seconds()
}

// Differs reports whether n requested tokens in dt are more (1) or fewer (-1) than noise explains, and by at least a tenth.
func (d *Demand) Differs(n float64, dt time.Duration) int {
	x := n / dt.Seconds()
	switch noise := max(d.noise(dt), d.rate/10); {
	case x > d.rate+noise:
		return 1
	case x < d.rate-noise:
		return -1
	}
	return 0
}

// Rate returns the estimate, in tokens per second.
func (d *Demand) Rate() float64 { return d.rate }
