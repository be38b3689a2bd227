package peers

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-go/spillway/lab/overload"
)

// firstLimit is the initial limit of the latency-based limits, as in Netflix's library.
const firstLimit = 20

// A limit bounds the requests in flight by a number that is learned from their latencies.
type limit struct {
	mu       sync.Mutex
	limit    float64
	inFlight int
	learn    func(limit float64, latency time.Duration, inFlight int) float64
}

func (l *limit) admission() Admission {
	return Admission{
		Admit: func() (func(), bool) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.inFlight >= int(l.limit) {
				return nil, false
			}
			l.inFlight++
			begin, inFlight := time.Now(), l.inFlight
			return func() { l.done(time.Since(begin), inFlight) }, true
		},
		View: func() overload.View {
			l.mu.Lock()
			defer l.mu.Unlock()
			return overload.View{Limit: overload.Known(math.Floor(l.limit)), InFlight: overload.Known(float64(l.inFlight))}
		},
	}
}

func (l *limit) done(latency time.Duration, inFlight int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	l.limit = l.learn(l.limit, max(latency, time.Microsecond), inFlight)
}

// Constants of Gradient2.
const (
	gradientMin       = 20
	gradientMax       = 200
	gradientTolerance = 1.5 // how much longer than the long mean is still normal
	gradientQueue     = 4   // room for requests that wait
	gradientSmoothing = 0.2
	gradientWindow    = 600 // samples that the long mean remembers
	gradientWarm      = 10  // samples of which it is the plain mean
	gradientDecay     = 0.95
)

// newGradient2 is the limit that follows the ratio of a long mean of the latency to its present value, after Netflix'
// Gradient2.
func newGradient2(Facts) (Admission, error) {
	long, seen := 0.0, 0
	l := &limit{limit: firstLimit, learn: func(limit float64, latency time.Duration, inFlight int) float64 {
		short := latency.Seconds()
		seen++
		if seen <= gradientWarm {
			long += (short - long) / float64(seen)
		} else {
			long += (short - long) * 2 / (gradientWindow + 1)
		}
		if long > 2*short { // the mean remembers an overload that is over
			long *= gradientDecay
		}
		if float64(inFlight) < limit/2 { // the limit did not hold requests back, so it was not tested
			return limit
		}
		wanted := limit*min(max(gradientTolerance*long/short, 0.5), 1) + gradientQueue
		return min(max(limit*(1-gradientSmoothing)+wanted*gradientSmoothing, gradientMin), gradientMax)
	}}
	return l.admission(), nil
}

// Constants of Vegas.
const (
	vegasMax   = 1000
	vegasAlpha = 3  // times log10 of the limit; a shorter queue raises the limit
	vegasBeta  = 6  // times log10 of the limit; a longer queue lowers the limit
	vegasProbe = 30 // times the limit: samples until the least latency is learned anew
)

// newVegas is the limit that estimates the length of the queue from the least latency seen, after TCP Vegas and
// Netflix's limit of that name.
func newVegas(Facts) (Admission, error) {
	rng := rand.New(rand.NewPCG(1, 1))
	jitter := func() float64 { return 0.5 + rng.Float64()/2 }
	samples, least, share := 0, time.Duration(0), jitter()
	l := &limit{limit: firstLimit, learn: func(limit float64, latency time.Duration, inFlight int) float64 {
		samples++
		if float64(samples) >= share*vegasProbe*limit {
			samples, least, share = 0, latency, jitter()
			return limit
		}
		if least == 0 || latency < least {
			least = latency
			return limit
		}
		unit := math.Max(1, math.Floor(math.Log10(limit)))
		queue := math.Ceil(limit * (1 - float64(least)/float64(latency)))
		switch {
		case float64(2*inFlight) < limit: // the limit was not tried
		case queue <= unit:
			limit += vegasBeta * unit
		case queue < vegasAlpha*unit:
			limit += unit
		case queue > vegasBeta*unit:
			limit -= unit
		}
		return min(max(limit, 1), vegasMax)
	}}
	return l.admission(), nil
}
