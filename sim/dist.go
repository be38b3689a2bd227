package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// A Dist is a distribution of durations. It is the sum of its parts; a part of 0 adds nothing.
type Dist struct {
	Fixed time.Duration // always the same
	Exp   time.Duration // the mean of an exponential part

	// LogNormal is the mean of a log-normal part, and Sigma the standard deviation of its logarithm: with 1, one in
	// a hundred takes six times the mean.
	LogNormal time.Duration
	Sigma     float64

	// Dear is added to a share DearShare of the durations, chosen at random: with a Fixed part this is a bimodal
	// distribution.
	Dear      time.Duration
	DearShare float64
}

func (d Dist) mean() time.Duration {
	return d.Fixed + d.Exp + d.LogNormal + time.Duration(d.DearShare*float64(d.Dear))
}

func (d Dist) draw(rng *rand.Rand) time.Duration {
	v := d.Fixed
	if d.Exp > 0 {
		v += time.Duration(rng.ExpFloat64() * float64(d.Exp))
	}
	if d.LogNormal > 0 {
		v += time.Duration(math.Exp(d.Sigma*rng.NormFloat64()-d.Sigma*d.Sigma/2) * float64(d.LogNormal))
	}
	if d.Dear > 0 && rng.Float64() < d.DearShare {
		v += d.Dear
	}
	return v
}

func (d Dist) validate() error {
	switch {
	case d.Fixed < 0 || d.Exp < 0 || d.LogNormal < 0 || d.Dear < 0:
		return fmt.Errorf("durations must not be negative, got %+v", d)
	case !(d.Sigma >= 0 && d.Sigma <= 5):
		return fmt.Errorf("field Sigma must be in 0..5, got %v", d.Sigma)
	case !(d.DearShare >= 0 && d.DearShare <= 1):
		return fmt.Errorf("field DearShare must be in 0..1, got %v", d.DearShare)
	}
	return nil
}
