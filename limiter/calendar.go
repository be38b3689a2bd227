package limiter

import (
	"sync/atomic"
	"time"
)

// A Calendar is a period of the wall clock that windows are aligned to.
type Calendar uint8

// The periods. A day and a month begin at local midnight, or at the first moment of the day if a clock change skips
// midnight. A day with a clock change has 23 or 25 hours. An hour that a clock change cuts in two counts as two.
const (
	EveryMinute Calendar = iota + 1
	EveryHour
	EveryDay
	EveryMonth
	numCalendars
)

// The seconds since 1970 at which the years begin and end that calendars know: 1 to 9999.
const (
	firstSecond = -62135596800
	lastSecond  = 253402300799
)

// civil returns t, or the nearest time that calendars know.
func civil(t time.Time) time.Time {
	sec := t.Unix()
	if sec >= firstSecond && sec <= lastSecond {
		return t
	}
	return time.Unix(min(max(sec, firstSecond), lastSecond), 0)
}

// A calendar finds the period around an instant in some time zone.
type calendar struct {
	every Calendar
	loc   *time.Location
	last  atomic.Pointer[span] // the period found last, since nearly all requests are in the same
}

// A span is one period, in seconds since 1970.
type span struct {
	prev, start, end int64 // prev is where the period before starts
}

func (c *calendar) spanOf(t time.Time) *span {
	sec := t.Unix()
	if s := c.last.Load(); s != nil && s.start <= sec && sec < s.end {
		return s
	}
	s := new(span)
	s.start, s.end = c.find(sec)
	s.prev, _ = c.find(s.start - 1)
	c.last.Store(s)
	return s
}

// next returns the period after the one that starts at start.
func (c *calendar) next(start int64) (nextStart, nextEnd int64) {
	_, end := c.find(start)
	return c.find(end)
}

// find returns the period around sec, with sec in [start, end).
func (c *calendar) find(sec int64) (start, end int64) {
	t := time.Unix(sec, 0).In(c.loc)
	y, m, d := t.Date()
	switch c.every {
	case EveryMinute:
		return clip(t, sec-int64(t.Second()), time.Minute)
	case EveryHour:
		return clip(t, sec-int64(t.Minute()*60+t.Second()), time.Hour)
	case EveryMonth:
		return c.dayStart(y, m, 1), c.dayStart(y, m+1, 1)
	default:
		return c.dayStart(y, m, d), c.dayStart(y, m, d+1)
	}
}

// clip returns the period of length d that begins at start, cut off at a clock change.
func clip(t time.Time, start int64, d time.Duration) (int64, int64) {
	end := start + int64(d/time.Second)
	from, to := t.ZoneBounds()
	if !from.IsZero() {
		start = max(start, from.Unix())
	}
	if !to.IsZero() {
		end = min(end, to.Unix())
	}
	return start, end
}

// dayStart returns the first second of a local day. It searches, because time.Date may return either side of a change of
// the clocks, and some zones change theirs at midnight.
func (c *calendar) dayStart(y int, m time.Month, d int) int64 {
	day := dayNumber(time.Date(y, m, d, 0, 0, 0, 0, time.UTC))
	lo := time.Date(y, m, d, 12, 0, 0, 0, c.loc).Unix()
	hi := lo
	for c.dayOf(lo) >= day {
		lo -= 12 * 3600
	}
	for c.dayOf(hi) < day {
		hi += 12 * 3600
	}
	for hi-lo > 1 { // dayOf(lo) < day <= dayOf(hi)
		if mid := lo + (hi-lo)/2; c.dayOf(mid) < day {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// dayOf returns the number of the local day that sec is in.
func (c *calendar) dayOf(sec int64) int64 {
	y, m, d := time.Unix(sec, 0).In(c.loc).Date()
	return dayNumber(time.Date(y, m, d, 0, 0, 0, 0, time.UTC))
}

func dayNumber(utcMidnight time.Time) int64 { return utcMidnight.Unix() / (24 * 3600) }
