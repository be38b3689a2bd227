package limiter

import (
	"fmt"
	"time"
)

// A FixedWindow is the [Rule] that lets through so many tokens per window: "3 per day". A window begins with the first request after the one
// before has ended, or is a period of the [Calendar], such as the local day.
//
// It is the rule that people understand and that contracts state. Its weakness is the edge: twice the limit may pass in
// little time, half at the end of one window and half at the start of the next. A [SlidingWindow] has no edge.
//
// Windows from the first request on go by the monotonic clock. Those of the calendar go by the wall clock; if that is set
// back, what was used up stays so. [Limiter.ReserveAt] reserves in the next window at most.
//
// Limit and either Period or Calendar have to be set. While the limit runs, a Period cannot give way to a Calendar, nor the other
// way round. The present window keeps its beginning and gets the length of a new Period.
type FixedWindow struct {
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

func (r FixedWindow) plan() (p plan[windowState], err error) {
	const kind = "FixedWindow"
	c := &window{limit: int64(r.Limit), period: int64(r.Period)}
	switch {
	case r.Limit < 1 || c.limit > maxLimit:
		return p, fmt.Errorf("limiter: %s: Limit must be in 1..2^53, got %d", kind, r.Limit)
	case r.Calendar >= numCalendars:
		return p, fmt.Errorf("limiter: %s: Calendar must be one of the constants, got %d", kind, r.Calendar)
	case r.Period < 0, r.Period > horizon:
		return p, fmt.Errorf("limiter: %s: Period must be in 0..%v, got %v", kind, time.Duration(horizon), r.Period)
	case (r.Period == 0) == (r.Calendar == 0):
		return p, fmt.Errorf("limiter: %s: either Period or Calendar must be set, got %v and %d", kind, r.Period, r.Calendar)
	}
	if r.Calendar != 0 {
		if r.Location == nil {
			r.Location = time.UTC
		}
		c.calendar = &calendar{every: r.Calendar, loc: r.Location}
	}
	r.Name, err = named(kind, r.Name, "fixed window")
	return plan[windowState]{rule: r, kind: kind, name: r.Name, reason: ReasonQuota, calendar: r.Calendar != 0, core: c}, err
}

func (r FixedWindow) build() (Limiter, error) { return newLimit(r.plan()) }

func (r FixedWindow) keyed(maxKeys int) (keyedLimits, error) { return newKeyedLimits(maxKeys, r) }
