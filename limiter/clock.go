package limiter

import "time"

// horizon bounds every wait, and the distance of an instant from the creation of the limit: 73 years in ns.
const horizon = 1 << 61

// never is the wait for tokens that will not come.
const never = time.Duration(1<<63 - 1)

// readClock reads the clock for methods without a time argument. A Policy does not call it.
func readClock() time.Time {
	return time.Now() //nolint:forbidigo // methods that are called directly, without a Gate, read the clock themselves
}

// A clock turns times into ns since one horizon before the limit was made. The result is between 0 and 2 × horizon, so
// that another horizon can be added without overflow. It uses the monotonic reading of a time if there is one, so a
// step of the wall clock changes nothing.
type clock struct{ base time.Time }

func newClock() clock { return clock{base: readClock()} }

func (c *clock) ns(t time.Time) int64 {
	return min(max(int64(t.Sub(c.base)), -horizon), horizon) + horizon
}

// time returns the time of ns, within a horizon of the making of the limit.
func (c *clock) time(ns int64) time.Time { return c.base.Add(time.Duration(ns - horizon)) }

// now returns the ns of this moment, by the cheaper of the two ways to read a clock.
func (c *clock) now() int64 {
	return int64(c.elapsed()) + horizon
}

// elapsed returns the time since the clock was made.
func (c *clock) elapsed() time.Duration {
	return time.Since(c.base) //nolint:forbidigo // as in readClock
}

func (c *clock) moment(t time.Time) moment { return moment{ns: c.ns(t), t: t} }

// A moment is one instant in the two forms that limits need.
type moment struct {
	ns int64     // as the clock counts
	t  time.Time // for the calendar
}
