package breaker

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway/internal/name"
)

// ThrottleOptions tune a [Throttle]. The zero ThrottleOptions are the defaults. With MinRequests 1, MaxRefusal 1, and
// ProbeEvery and RecoverAfter Off, a Throttle works as the book describes.
type ThrottleOptions struct {
	// Name is the name of the Throttle in rejections and Stats: printable ASCII, at most 64 bytes. If Name is empty, it
	// is "throttle". It cannot change later.
	Name string
	// K is the ratio of requests to accepts above which some requests are refused, at least 1. A lower K refuses sooner
	// and sends less load to a dependency in trouble. With 2, the dependency gets at most twice the load that it can
	// accept. If K is 0, it is 2.
	K float64
	// Window is how far back requests count. If Window is 0, it is 2 minutes. It cannot change later.
	Window time.Duration `tune:"-"`
	// Buckets is the number of steps in which the Window moves on, at most 1000. Window in nanoseconds must be a
	// multiple of it. If Buckets is 0, it is 40. It cannot change later.
	Buckets int `tune:"-"`
	// MinRequests is how many requests there must be in the Window before one is refused. If MinRequests is 0, it is 20.
	MinRequests int
	// MaxRefusal is the greatest share of requests, in (0, 1], that is refused. The other requests find out when the
	// dependency is back. If MaxRefusal is 0, it is 0.95.
	MaxRefusal float64
	// ProbeEvery is the time without an admitted call after which the next call is admitted, whatever the probability.
	// If ProbeEvery is 0, it is 1 s. If it is [Off], only the probability decides.
	ProbeEvery time.Duration
	// RecoverAfter is how many successes in a row, over at least one second, end the refusals: the Throttle then
	// forgets the past. So recovery takes no longer after a long outage or at a high rate. If RecoverAfter is 0, it is
	// 5. If it is [Off], requests are forgotten only when they leave the Window.
	RecoverAfter int
	// Seed determines which requests are refused. If Seed is 0, it is random. It cannot change later.
	Seed uint64 `tune:"-"`
}

// withDefaults returns o with every zero field set to its default, or an error that names the invalid field.
func (o ThrottleOptions) withDefaults() (ThrottleOptions, error) {
	o.K = cmp.Or(o.K, 2.0)
	o.Window = cmp.Or(o.Window, 2*time.Minute)
	o.Buckets = cmp.Or(o.Buckets, 40)
	o.MinRequests = cmp.Or(o.MinRequests, 20)
	o.MaxRefusal = cmp.Or(o.MaxRefusal, 0.95)
	o.ProbeEvery = cmp.Or(o.ProbeEvery, time.Second)
	o.RecoverAfter = cmp.Or(o.RecoverAfter, 5)
	var err error
	if o.Name, err = name.Or("breaker: Throttle", o.Name, "throttle"); err != nil {
		return o, err //nolint:wrapcheck // it names the field
	}
	return o, o.validate()
}

func (o *ThrottleOptions) validate() error {
	switch {
	case !(o.K >= 1) || math.IsInf(o.K, 1):
		return fmt.Errorf("breaker: Throttle: K must be at least 1 and finite, got %v", o.K)
	case o.Buckets < 1 || o.Buckets > maxBuckets:
		return fmt.Errorf("breaker: Throttle: Buckets must be in 1..%d, got %d", maxBuckets, o.Buckets)
	case o.Window <= 0 || o.Window > maxDuration || o.Window%time.Duration(o.Buckets) != 0:
		return fmt.Errorf("breaker: Throttle: Window must be a positive multiple of Buckets (%d) nanoseconds and at most a year, got %v",
			o.Buckets, o.Window)
	case o.MinRequests < 1:
		return fmt.Errorf("breaker: Throttle: MinRequests must be at least 1, got %d", o.MinRequests)
	case !isShare(o.MaxRefusal):
		return fmt.Errorf("breaker: Throttle: MaxRefusal must be in (0, 1], got %v", o.MaxRefusal)
	case o.ProbeEvery < 0 && o.ProbeEvery != Off || o.ProbeEvery > maxDuration:
		return fmt.Errorf("breaker: Throttle: ProbeEvery must be positive and at most a year, or Off, got %v", o.ProbeEvery)
	case o.RecoverAfter < 1 && o.RecoverAfter != Off:
		return fmt.Errorf("breaker: Throttle: RecoverAfter must be at least 1 or Off, got %d", o.RecoverAfter)
	}
	return nil
}

// keep takes over the fields that cannot be tuned.
func (o *ThrottleOptions) keep(old *ThrottleOptions) (err error) {
	if o.Name, err = name.Keep("breaker: Throttle", old.Name, o.Name); err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	return cmp.Or(
		keepField("breaker: Throttle: Tune: Window", &o.Window, old.Window),
		keepField("breaker: Throttle: Tune: Buckets", &o.Buckets, old.Buckets),
		keepField("breaker: Throttle: Tune: Seed", &o.Seed, old.Seed),
	)
}
