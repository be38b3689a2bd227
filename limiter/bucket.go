package limiter

import (
	"time"

	"github.com/spillway-go/spillway"
)

// A Bucket is a token bucket: it holds up to Burst tokens and gains them at a steady rate, and a request passes if it finds
// as many as it costs. So at most Burst + rate × d requests pass in any time d. It begins full.
//
// It is GCRA in integers: exact at any rate from one per day to a billion per second, whatever the pattern of requests.
// A time before that of an earlier call counts as that time, so a stale clock gains no tokens.
//
// It is made by [NewBucket]; the zero Bucket denies everything. All methods may be called concurrently.
type Bucket struct {
	meter
}

// BucketOptions tune a [Bucket]. Rate has to be set.
type BucketOptions struct {
	// Rate is how fast tokens come back.
	Rate Rate
	// Burst is how many tokens the bucket holds, which is the greatest cost that can ever pass. If Burst is 0, it is
	// Rate.Tokens, or 1 if that is 0. So that nothing is ever rounded, it is at most 2^61 over the ns that Rate has for one
	// token, as a fraction in its lowest terms, and never more than 2^53: 26 000 at one per day, 2.3e9 at one per second.
	Burst int
	// Name is what rejections, metrics and header fields call the limit, in printable ASCII. If Name is empty, it is
	// "token bucket".
	Name string
}

// NewBucket returns a full Bucket. The error names the field that cannot be right.
func NewBucket(o *BucketOptions) (*Bucket, error) {
	var opts BucketOptions
	if o != nil {
		opts = *o
	}
	b := new(Bucket)
	if err := b.setUp("Bucket", opts.Rate, opts.Burst, "Burst", opts.Name, "token bucket"); err != nil {
		return nil, err
	}
	return b, nil
}

// SetLimit is [Bucket.SetLimitAt] now.
func (b *Bucket) SetLimit(rate Rate, burst int) error { return b.SetLimitAt(readClock(), rate, burst) }

// SetLimitAt changes the rate and the burst from now on, with the defaults of [BucketOptions]. As many tokens as were taken
// and have not come back stay taken: a greater burst adds the difference, a smaller one leaves at least none. Those who
// wait already do not wait longer or shorter. The error names what cannot be right, and then nothing has changed.
func (b *Bucket) SetLimitAt(now time.Time, rate Rate, burst int) error {
	return b.setLimit(now, "Bucket", rate, burst, "Burst")
}

var _ spillway.Policy = (*Bucket)(nil)
