package limiter

import (
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
)

// A FixedWindow lets through so many tokens per window: "3 per day". A window begins with the first request after the one
// before has ended, or is a period of the [Calendar], such as the local day.
//
// It is the rule that people understand and that contracts state. Its weakness is the edge: twice the limit may pass in
// little time, half at the end of one window and half at the start of the next. A [SlidingWindow] has no edge.
//
// Windows from the first request on go by the monotonic clock. Those of the calendar go by the wall clock; if that is set
// back, what was used up stays so. [FixedWindow.Reserve] reserves in the next window at most.
//
// It is made by [NewFixedWindow]; the zero FixedWindow denies everything. All methods may be called concurrently.
type FixedWindow struct {
	limit[windowState]
}

// FixedWindowOptions tune a [FixedWindow]. Limit and either Period or Calendar have to be set.
type FixedWindowOptions struct {
	// Limit is how many tokens may pass in each window, at least 1 and at most 2^53.
	Limit int
	// Period is how long a window is that begins with the first request. It is 0 if Calendar is set.
	Period time.Duration
	// Calendar is which period of the calendar a window is. It is 0 if Period is set.
	Calendar Calendar
	// Location is the time zone of Calendar. If Location is nil, it is UTC.
	Location *time.Location
	// Name is what rejections, metrics and header fields call the limit, in printable ASCII. If Name is empty, it is
	// "fixed window".
	Name string
}

// maxLimit bounds the limits of windows, so that sums of a few cannot overflow.
const maxLimit = 1 << 53

// NewFixedWindow returns a FixedWindow that nobody has used. The error names the field that cannot be right.
func NewFixedWindow(o *FixedWindowOptions) (*FixedWindow, error) {
	var opts FixedWindowOptions
	if o != nil {
		opts = *o
	}
	c := &window{period: int64(opts.Period)}
	err := c.setLimit(opts.Limit)
	switch {
	case err != nil:
		return nil, err
	case opts.Calendar >= numCalendars:
		return nil, fmt.Errorf("limiter: FixedWindow: Calendar must be one of the constants, got %d", opts.Calendar)
	case opts.Period < 0, opts.Period > horizon:
		return nil, fmt.Errorf("limiter: FixedWindow: Period must be in 0..%v, got %v", time.Duration(horizon), opts.Period)
	case (opts.Period == 0) == (opts.Calendar == 0):
		return nil, fmt.Errorf("limiter: FixedWindow: either Period or Calendar must be set, got %v and %d", opts.Period, opts.Calendar)
	}
	if err := validateName("FixedWindow", opts.Name); err != nil {
		return nil, err
	}
	if opts.Name == "" {
		opts.Name = "fixed window"
	}
	w := new(FixedWindow)
	if opts.Calendar != 0 {
		if opts.Location == nil {
			opts.Location = time.UTC
		}
		c.calendar = &calendar{every: opts.Calendar, loc: opts.Location}
		w.calendar = true
	}
	w.make(c, newRejections(opts.Name, ReasonQuota, true))
	w.ends = new(countdown)
	return w, nil
}

// SetLimit changes how many tokens may pass in each window, from the present one on: what has passed in it counts. The
// error says that limit cannot be right, and then nothing has changed.
func (w *FixedWindow) SetLimit(limit int) error {
	c := new(window)
	if err := c.setLimit(limit); err != nil {
		return err
	}
	return w.update(readClock(), func(old core[windowState]) (core[windowState], error) {
		c.period, c.calendar = old.(*window).period, old.(*window).calendar //nolint:forcetypeassert // made by NewFixedWindow
		return c, nil
	})
}

func (w *window) setLimit(limit int) error {
	if limit < 1 || int64(limit) > maxLimit {
		return fmt.Errorf("limiter: FixedWindow: Limit must be in 1..2^53, got %d", limit)
	}
	w.limit = int64(limit)
	return nil
}

var _ spillway.Policy = (*FixedWindow)(nil)
