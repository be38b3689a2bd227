package limiter

import (
	"time"

	"github.com/spillway-go/spillway"
)

// A Policer is a leaky bucket used as a meter: every request pours its cost in, it leaks at a steady rate, and a request
// that would make it overflow is refused. It makes nobody wait; the leaky bucket that does is a [Shaper].
//
// It is the mirror image of a [Bucket], and decides exactly alike if Capacity is the Bucket's Burst: at most Capacity +
// rate × d requests pass in any time d. Take the one whose words fit what you limit.
//
// It is made by [NewPolicer]; the zero Policer denies everything. All methods may be called concurrently.
type Policer struct {
	meter
}

// PolicerOptions tune a [Policer]. Rate has to be set.
type PolicerOptions struct {
	// Rate is how fast the bucket leaks.
	Rate Rate
	// Capacity is how much it holds, which is the greatest cost that can ever pass. If Capacity is 0, it is Rate.Tokens, or 1
	// if that is 0.
	Capacity int
	// Name is what rejections, metrics and header fields call the limit, in printable ASCII. If Name is empty, it is
	// "leaky bucket".
	Name string
}

// NewPolicer returns an empty Policer. The error names the field that cannot be right.
func NewPolicer(o *PolicerOptions) (*Policer, error) {
	var opts PolicerOptions
	if o != nil {
		opts = *o
	}
	p := new(Policer)
	if err := p.setUp("Policer", opts.Rate, opts.Capacity, "Capacity", opts.Name, "leaky bucket"); err != nil {
		return nil, err
	}
	return p, nil
}

// SetLimit is [Policer.SetLimitAt] now.
func (p *Policer) SetLimit(rate Rate, capacity int) error {
	return p.SetLimitAt(readClock(), rate, capacity)
}

// SetLimitAt changes the rate and the capacity from now on, with the defaults of [PolicerOptions]. What is in the bucket
// stays there. The error names what cannot be right, and then nothing has changed.
func (p *Policer) SetLimitAt(now time.Time, rate Rate, capacity int) error {
	return p.setLimit(now, "Policer", rate, capacity, "Capacity")
}

// Level returns how much is in the bucket at now, rounded up.
func (p *Policer) Level(now time.Time) int64 {
	s := p.PeekAt(now)
	return s.Limit - s.Remaining
}

var _ spillway.Policy = (*Policer)(nil)
