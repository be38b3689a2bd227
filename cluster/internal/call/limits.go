package call

import (
	"math"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/limiter"
)

// ErrZero is the answer of the zero values of package cluster, which no constructor returned.
var ErrZero = &spillway.Rejection{Policy: "cluster", Reason: rejections.NotMade}

// CostError returns the error of package limiter for a call that can never pass. A limit of that package with the same
// name and size makes it, so that it wraps the same error.
func CostError(name string, n int, most int64) error {
	w, err := limiter.New(limiter.FixedWindow{
		Limit: int(min(most, math.MaxInt)), Period: time.Hour, Name: name,
	})
	if err != nil {
		return err // the name and the limit were validated, so this is not reached
	}
	return w.AllowAt(time.Time{}, n)
}

// RetryAfter returns the RetryAfter of a rejection, or 0.
func RetryAfter(err error) time.Duration {
	if rej := spillway.RejectionOf(err); rej != nil {
		return rej.RetryAfter
	}
	return 0
}
