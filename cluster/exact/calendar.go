package exact

import (
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// A serverClock estimates the time of Redis. No decision depends on it: it only saves a second call.
type serverClock struct {
	seen atomic.Pointer[sighting]
}

// A sighting is a time of the server, and the local monotonic time at which it arrived.
type sighting struct {
	server int64 // µs since 1970
	local  time.Time
}

// drift is how far the estimate may be off before it is renewed.
const drift = time.Second

func (c *serverClock) estimate(now time.Time) int64 {
	if s := c.seen.Load(); s != nil {
		return s.server + now.Sub(s.local).Microseconds()
	}
	return now.UnixMicro() // a first guess; Redis corrects it if it is wrong
}

func (c *serverClock) learn(server int64, now time.Time) {
	off := server - c.estimate(now)
	if c.seen.Load() == nil || off > drift.Microseconds() || off < -drift.Microseconds() {
		c.seen.Store(&sighting{server: server, local: now})
	}
}

// edges are an instant and the ends of the periods that follow, in µs since 1970. The instant is in the first period.
type edges [figures - 1]int64

// A calendarEnds finds the edges around an instant for one rule.
type calendarEnds struct {
	rule rule
	last atomic.Pointer[edges] // found last, and good for a period
}

// around returns edges with at within, at least half a period from either end.
func (c *calendarEnds) around(at int64) edges {
	if e := c.last.Load(); e != nil && at >= e[1] && at < e[2] {
		return *e
	}
	from := at - c.rule.span().Microseconds()
	e := edges{from}
	for i := 1; i < len(e); i++ {
		e[i] = c.end(e[i-1])
	}
	c.last.Store(&e)
	return e
}

// end returns when the period around an instant ends. It uses the calendar of package limiter, which knows how long a used-up
// window lasts.
func (c *calendarEnds) end(at int64) int64 {
	w, err := limiter.New(limiter.FixedWindow{Limit: 1, Calendar: c.rule.calendar, Location: c.rule.location})
	if err != nil {
		return at // the rule was validated, so this is not reached
	}
	t := time.UnixMicro(at)
	_ = w.AllowAt(t, 1)
	return at + w.PeekAt(t).NextIn.Microseconds()
}
