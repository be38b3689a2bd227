package limiter

import (
	"errors"
	"fmt"
	"time"

	"github.com/spillway-go/spillway/internal/rejections"
)

// A FixedWindow is the [Rule] that lets a number of tokens through per window: "3 per day". A window begins with the
// first request after the last window has ended, or is a period of the [Calendar], such as the local day.
//
// This rule is easy to understand, and contracts often state it. Its weakness is the edge: twice the limit may pass in
// a short time, half at the end of one window and half at the start of the next. A [SlidingWindow] has no edge.
//
// Windows that begin with a request follow the monotonic clock. Calendar windows follow the wall clock; if it is set
// back, used tokens stay used. [Limiter.ReserveAt] reserves in the present or the next window only.
//
// Limit is required, and so is either Period or Calendar. While the limit runs, a Period cannot be replaced by a
// Calendar or the other way round. If Period changes, the present window keeps its beginning and gets the new length.
type FixedWindow struct {
	// Limit is how many tokens may pass in each window, at least 1 and at most 2^53.
	Limit int
	// Period is the length of a window that begins with the first request. It is 0 if Calendar is set.
	Period time.Duration
	// Calendar is the calendar period that makes a window. It is 0 if Period is set.
	Calendar Calendar
	// Location is the time zone of Calendar. If Location is nil, it is UTC.
	Location *time.Location
	// Name is the name of the limit in rejections, metrics and header fields, in printable ASCII. If Name is empty, it
	// is "fixed window".
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
	return plan[windowState]{rule: r, kind: kind, name: r.Name, reason: rejections.Quota, calendar: r.Calendar != 0, core: c}, err
}

func (r FixedWindow) build() (Limiter, error) { return newLimit(r.plan()) }

func (r FixedWindow) keyed(maxKeys int) (keyedLimits, error) { return newKeyedLimits(maxKeys, r) }

// A window is the rule of a FixedWindow.
type window struct {
	limit    int64
	period   int64     // ns; 0 if there is a calendar
	calendar *calendar // nil if windows begin with the first request
}

// windowState is the zero value if there is no window.
type windowState struct {
	start int64 // of the window: ns, or seconds since 1970 if there is a calendar
	used  int64 // in the window
	next  int64 // reserved in the one after
	last  int64 // the greatest ns seen
}

// fresh reports whether there is no window.
func (s *windowState) fresh() bool { return s.used == 0 && s.next == 0 }

// roll brings s to the window around m and returns how long that lasts from m on, in ns.
func (w *window) roll(s *windowState, m moment) (left int64) {
	latest := s.last
	s.last = max(s.last, m.ns)
	if w.calendar != nil {
		return w.rollCalendar(s, m, latest)
	}
	now := s.last
	switch elapsed := now - s.start; {
	case s.fresh(), elapsed >= 2*w.period, elapsed >= w.period && s.next == 0:
		*s = windowState{start: now, last: s.last}
	case elapsed >= w.period:
		s.start += w.period
		s.used, s.next = s.next, 0
	}
	return s.start + w.period - m.ns
}

func (w *window) rollCalendar(s *windowState, m moment, latest int64) (left int64) {
	t := civil(m.t)
	sp := w.calendar.spanOf(t)
	if !s.fresh() && sp.start < s.start && m.ns <= latest {
		// An arrival before the window: the request was delayed, because the monotonic clock shows this too.
		end, _ := w.calendar.next(s.start)
		return nsUntil(end, t)
	}
	switch {
	case s.fresh(), sp.start <= s.start: // if it is less, the clock was set back: used tokens stay used
	case sp.prev == s.start:
		s.used, s.next = s.next, 0
	default:
		s.used, s.next = 0, 0
	}
	s.start = sp.start
	return nsUntil(sp.end, t)
}

// nsUntil returns the ns from t to a second since 1970, within the horizon.
func nsUntil(sec int64, t time.Time) int64 {
	return min(sec-t.Unix(), horizon/int64(time.Second))*int64(time.Second) - int64(t.Nanosecond())
}

// nextStart returns the start of the window after that of s.
func (w *window) nextStart(s *windowState) int64 {
	if w.calendar == nil {
		return s.start + w.period
	}
	start, _ := w.calendar.next(s.start)
	return start
}

// stamp marks tokens that were taken in the window that starts at start.
func (w *window) stamp(start int64) uint64 {
	if w.calendar != nil {
		start += horizon // there were days before 1970
	}
	return uint64(start)
}

func (w *window) take(s *windowState, m moment, n, maxWait int64) (wait int64, stamp uint64, ok bool) {
	left := w.roll(s, m)
	switch {
	case s.used+n <= w.limit:
		s.used += n
		stamp = w.stamp(s.start)
	case left <= maxWait && s.next+n <= w.limit:
		s.next += n
		wait, stamp = left, w.stamp(w.nextStart(s))
	case s.next+n > w.limit:
		return int64(sum(left, w.length(s))), 0, false
	default:
		return left, 0, false
	}
	return wait, stamp, true
}

// length returns the length in ns of the window after that of s.
func (w *window) length(s *windowState) int64 {
	if w.calendar == nil {
		return w.period
	}
	start, end := w.calendar.next(s.start)
	return (end - start) * int64(time.Second)
}

func (w *window) giveBack(s *windowState, m moment, l loan) {
	w.roll(s, m)
	if l.stamp == noStamp && !s.fresh() && w.around(s, m, l.took) {
		l.stamp = w.stamp(s.start)
	}
	switch {
	case l.stamp == w.stamp(s.start):
		s.used = max(s.used-l.n, 0)
	case s.next > 0 && l.stamp == w.stamp(w.nextStart(s)):
		s.next = max(s.next-l.n, 0)
	}
}

// around reports whether the window of s contains an instant, whose time is m.
func (w *window) around(s *windowState, m moment, took int64) bool {
	if w.calendar == nil {
		return took >= s.start && took < s.start+w.period
	}
	return w.calendar.spanOf(civil(m.t)).start == s.start
}

func (w *window) peek(s *windowState, m moment) State {
	now := *s
	left := w.roll(&now, m)
	st := State{Limit: w.limit, Remaining: max(w.limit-now.used, 0)}
	if now.fresh() {
		return st
	}
	st.NextIn, st.FullIn = time.Duration(left), time.Duration(left)
	if now.next > 0 {
		st.FullIn = sum(left, w.length(&now))
	}
	return st
}

func (w *window) idle(s *windowState, m moment) bool {
	now := *s
	w.roll(&now, m)
	return now.fresh()
}

func (w *window) since(int64, *windowState) core[windowState] { return w }

func (w *window) heir(s *windowState, _ moment) windowState { return *s }

func (w *window) max() int64 { return w.limit }

func (w *window) window() time.Duration {
	switch {
	case w.calendar == nil:
		return time.Duration(w.period)
	case w.calendar.every == EveryMinute:
		return time.Minute
	case w.calendar.every == EveryHour:
		return time.Hour
	case w.calendar.every == EveryDay:
		return 24 * time.Hour
	}
	return 30 * 24 * time.Hour
}

// follows refuses a change between calendar windows and other windows, because they store the start of a window
// differently.
func (w *window) follows(old core[windowState]) error {
	if o := old.(*window); (o.calendar == nil) != (w.calendar == nil) { //nolint:forcetypeassert // the only core of its state
		return errors.New("limiter: FixedWindow: Tune: Period must stay set, or Calendar, got the other")
	}
	return nil
}

// adopt lets the current window continue.
func (w *window) adopt(*windowState, moment, core[windowState]) {}
