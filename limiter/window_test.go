package limiter

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

func newWindow(t testing.TB, o FixedWindow) *limit[windowState] {
	t.Helper()
	w, err := New(o)
	require.NoError(t, err)
	return w.(*limit[windowState])
}

func TestFixedWindowDecides(t *testing.T) {
	const s = time.Second
	w := newWindow(t, FixedWindow{Limit: 3, Period: 10 * s})
	play(t, w, []call{
		{5 * s, 1, true}, {6 * s, 1, true}, {15*s - 1, 1, true}, {15*s - 1, 1, false},
		{15 * s, 3, true}, {25*s - 1, 1, false}, // from the first request on
		{60 * s, 1, true}, {70*s - 1, 2, true}, {70*s - 1, 1, false}, {70 * s, 1, true},
	})
}

func TestFixedWindowTellsWhatRemains(t *testing.T) {
	const s = time.Second
	w := newWindow(t, FixedWindow{Limit: 3, Period: 10 * s})
	require.Equal(t, State{Limit: 3, Remaining: 3}, w.PeekAt(after(0)))
	for i := range int64(3) {
		require.NoError(t, w.AllowAt(after(0), 1))
		require.Equal(t, State{Limit: 3, Remaining: 2 - i, NextIn: 10 * s, FullIn: 10 * s}, w.PeekAt(after(0)))
	}
	for range 3 {
		err := w.AllowAt(after(4*s), 1)
		want := &spillway.Rejection{Policy: "fixed window", Reason: "quota used up", RetryAfter: 6 * s, OverQuota: true}
		require.Equal(t, want, err)
		require.Equal(t, State{Limit: 3, NextIn: 6 * s, FullIn: 6 * s}, w.PeekAt(after(4*s)))
	}
	require.Equal(t, State{Limit: 3, Remaining: 3}, w.PeekAt(after(10*s)))
	require.True(t, w.Idle(after(10*s)))
	require.False(t, w.Idle(after(10*s-1)))
}

// As the cycles of resilience4j.
func TestFixedWindowReservesTheNext(t *testing.T) {
	const s = time.Second
	w := newWindow(t, FixedWindow{Limit: 1, Period: 10 * s})
	play(t, w, []call{{0, 1, true}, {0, 1, false}})
	r, err := w.ReserveAt(after(10*s-1), 1, s)
	require.NoError(t, err)
	require.Equal(t, time.Duration(1), r.Delay())
	_, err = w.ReserveAt(after(10*s-1), 1, time.Hour)
	var rej *spillway.Rejection
	require.ErrorAs(t, err, &rej)
	require.Equal(t, 10*s+1, rej.RetryAfter, "the next one is taken too")
	play(t, w, []call{{10 * s, 1, false}, {20*s - 1, 1, false}})
	r.CancelAt(after(15 * s)) // too late
	play(t, w, []call{{15 * s, 1, false}})
	r.RefundAt(after(15*s), 1)
	play(t, w, []call{{15 * s, 1, true}, {15 * s, 1, false}})

	w = newWindow(t, FixedWindow{Limit: 1, Period: 10 * s})
	play(t, w, []call{{0, 1, true}})
	r, err = w.ReserveAt(after(5*s), 1, 10*s)
	require.NoError(t, err)
	r.CancelAt(after(6 * s))
	play(t, w, []call{{6 * s, 1, false}, {10 * s, 1, true}})
	r, err = w.ReserveAt(after(11*s), 1, 10*s)
	require.NoError(t, err)
	play(t, w, []call{{65 * s, 1, true}, {65 * s, 1, false}}) // six windows later there is one, and not more
	r.CancelAt(after(65 * s))
	play(t, w, []call{{65 * s, 1, false}})
}

func TestFixedWindowSetLimit(t *testing.T) {
	w := newWindow(t, FixedWindow{Limit: 10, Period: time.Hour})
	require.NoError(t, w.AllowAt(time.Now(), 8))
	require.NoError(t, setLimit(w, 12))
	require.Equal(t, int64(4), w.PeekAt(readClock()).Remaining)
	require.NoError(t, setLimit(w, 5))
	require.Equal(t, int64(0), w.PeekAt(readClock()).Remaining)
	require.EqualError(t, setLimit(w, 0), "limiter: FixedWindow: Limit must be in 1..2^53, got 0")
	require.Equal(t, int64(5), w.PeekAt(readClock()).Limit)
}

func TestFixedWindowAgainstModel(t *testing.T) {
	seeds(t, 20, func(t *testing.T, rng *rand.Rand) {
		limit := 1 + rng.IntN(8)
		w := newWindow(t, FixedWindow{Limit: limit, Period: time.Minute})
		against(t, rng, w, &windowModel{limit: limit, period: time.Minute}, limit, 5*time.Second, 2000)
	})
}

func TestFixedWindowOptions(t *testing.T) {
	for want, o := range map[string]FixedWindow{
		"limiter: FixedWindow: Limit must be in 1..2^53, got 0":                        {},
		"limiter: FixedWindow: Limit must be in 1..2^53, got -1":                       {Limit: -1, Period: 1},
		"limiter: FixedWindow: either Period or Calendar must be set, got 0s and 0":    {Limit: 1},
		"limiter: FixedWindow: either Period or Calendar must be set, got 1s and 1":    {Limit: 1, Period: time.Second, Calendar: 1},
		"limiter: FixedWindow: Calendar must be one of the constants, got 5":           {Limit: 1, Calendar: 5},
		"limiter: FixedWindow: Period must be in 0..640511h56m34.004840448s, got -1ns": {Limit: 1, Period: -1},
		"limiter: FixedWindow: Name must be printable ASCII, got \"a\\tb\"":            {Limit: 1, Period: 1, Name: "a\tb"},
	} {
		w, err := New(o)
		require.Nil(t, w)
		require.Error(t, err)
		if o.Period != -1 {
			require.EqualError(t, err, want)
		}
	}
}

// A rejection counts down to the end of the window, and is built at most every 100 ms.
func TestFixedWindowRetryAfterCountsDown(t *testing.T) {
	w := newWindow(t, FixedWindow{Limit: 1, Period: time.Minute})
	require.NoError(t, w.AllowAt(after(0), 1))
	built := map[*spillway.Rejection]bool{}
	for at := time.Duration(0); at < time.Minute; at += time.Millisecond {
		_, err := w.Admit(t.Context(), spillway.Request{Arrived: after(at)})
		rej := err.(*spillway.Rejection)
		built[rej] = true
		late := rej.RetryAfter - (time.Minute - at)
		require.True(t, late >= 0 && late < 100*time.Millisecond, "at %v: %v", at, rej.RetryAfter)
	}
	require.LessOrEqual(t, len(built), 600)
}

// A request that has to wait longer, since it costs more, does not put off the others.
func TestFixedWindowRetryAfterIsOnesOwn(t *testing.T) {
	const s = time.Second
	w := newWindow(t, FixedWindow{Limit: 2, Period: 10 * s})
	require.NoError(t, w.AllowAt(after(0), 2))
	_, err := w.ReserveAt(after(0), 1, 10*s)
	require.NoError(t, err)
	for range 3 {
		for n, want := range map[int]time.Duration{1: 10 * s, 2: 20 * s} {
			var rej *spillway.Rejection
			require.ErrorAs(t, w.AllowAt(after(0), n), &rej)
			require.GreaterOrEqual(t, rej.RetryAfter, want)
			require.LessOrEqual(t, rej.RetryAfter, want*17/16)
		}
	}
}

// However requests come in the days around a change of the clocks, each local day lets through its limit or what was asked.
func TestFixedWindowAgainstDates(t *testing.T) {
	for _, c := range []struct{ zone, from string }{
		{"Europe/Berlin", "2026-03-26"}, {"Europe/Berlin", "2026-10-22"}, {"America/Sao_Paulo", "2018-11-01"},
		{"America/Havana", "2026-10-29"}, {"Pacific/Apia", "2011-12-27"}, {"UTC", "2026-03-26"},
	} {
		t.Run(c.zone+" "+c.from, func(t *testing.T) {
			loc := load(t, c.zone)
			from, err := time.ParseInLocation(time.DateOnly, c.from, loc)
			require.NoError(t, err)
			seeds(t, 5, func(t *testing.T, rng *rand.Rand) {
				limit := 1 + rng.IntN(20)
				w := newWindow(t, FixedWindow{Limit: limit, Calendar: EveryDay, Location: loc})
				used := map[string]int{}
				for at := from; at.Before(from.AddDate(0, 0, 8)); at = at.Add(time.Duration(rng.Int64N(int64(2 * time.Hour)))) {
					day, n := at.In(loc).Format(time.DateOnly), 1+rng.IntN(limit)
					ok := used[day]+n <= limit
					if got := w.AllowAt(at, n) == nil; got != ok {
						t.Fatalf("%v: %d of %d used, %d more: %v", at, used[day], limit, n, got)
					}
					if ok {
						used[day] += n
					}
				}
			})
		})
	}
}

func load(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

func TestCalendarDays(t *testing.T) {
	for _, c := range []struct {
		zone, in, start, end string
		hours                float64
	}{
		{"UTC", "2026-03-01T12:00:00Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", 24},
		{"Europe/Berlin", "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", 23},
		{"Europe/Berlin", "2026-10-25T01:00:00+02:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00", 25},
		{"America/Sao_Paulo", "2018-11-04T12:00:00-02:00", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00", 23}, // no midnight
		{"America/Sao_Paulo", "2018-11-03T23:59:59-03:00", "2018-11-03T00:00:00-03:00", "2018-11-04T01:00:00-02:00", 24},
		{"America/Sao_Paulo", "2018-02-17T23:30:00-03:00", "2018-02-17T00:00:00-02:00", "2018-02-18T00:00:00-03:00", 25}, // 23:30 twice
		{"America/Havana", "2026-11-01T00:30:00-05:00", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00", 25},    // 00:30 twice
		{"Australia/Lord_Howe", "2026-04-05T12:00:00+10:30", "2026-04-05T00:00:00+11:00", "2026-04-06T00:00:00+10:30", 24.5},
		{"Pacific/Apia", "2011-12-31T08:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00", 24}, // 30 December was left out
		{"Pacific/Apia", "2011-12-29T08:00:00-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00", 24},
	} {
		t.Run(c.zone+" "+c.in, func(t *testing.T) {
			in, err := time.Parse(time.RFC3339, c.in)
			require.NoError(t, err)
			cal := &calendar{every: EveryDay, loc: load(t, c.zone)}
			s := cal.spanOf(in)
			text := func(sec int64) string { return time.Unix(sec, 0).In(cal.loc).Format(time.RFC3339) }
			require.Equal(t, []string{c.start, c.end}, []string{text(s.start), text(s.end)})
			require.InDelta(t, c.hours, float64(s.end-s.start)/3600, 0)
			require.Same(t, s, cal.spanOf(in.Add(time.Nanosecond)), "found once")
			_, prevEnd := cal.find(s.prev)
			require.Equal(t, s.start, prevEnd)
		})
	}
}

func TestCalendarPeriods(t *testing.T) {
	in, err := time.Parse(time.RFC3339, "2026-02-28T23:59:30.5+05:45")
	require.NoError(t, err)
	for every, want := range map[Calendar][2]string{
		EveryMinute: {"2026-02-28T23:59:00+05:45", "2026-03-01T00:00:00+05:45"},
		EveryHour:   {"2026-02-28T23:00:00+05:45", "2026-03-01T00:00:00+05:45"},
		EveryDay:    {"2026-02-28T00:00:00+05:45", "2026-03-01T00:00:00+05:45"},
		EveryMonth:  {"2026-02-01T00:00:00+05:45", "2026-03-01T00:00:00+05:45"},
	} {
		cal := &calendar{every: every, loc: load(t, "Asia/Kathmandu")}
		s := cal.spanOf(in)
		text := func(sec int64) string { return time.Unix(sec, 0).In(cal.loc).Format(time.RFC3339) }
		require.Equal(t, want, [2]string{text(s.start), text(s.end)})
	}
	// An hour that a change of 30 minutes cuts.
	cal := &calendar{every: EveryHour, loc: load(t, "Australia/Lord_Howe")}
	in = time.Date(2026, time.October, 4, 2, 45, 0, 0, cal.loc)
	s := cal.spanOf(in)
	require.Equal(t, int64(1800), s.end-s.start)
}

// Every period of a year, in awkward zones, begins where the one before ends.
func TestCalendarHasNoGaps(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Gaza"} {
		cal := &calendar{every: EveryDay, loc: load(t, zone)}
		end := time.Date(2012, time.February, 1, 0, 0, 0, 0, time.UTC).Unix()
		for sec := time.Date(2011, time.January, 1, 0, 0, 0, 0, time.UTC).Unix(); sec < end; {
			s, e := cal.find(sec)
			require.True(t, s <= sec && sec < e && e-s >= 22*3600 && e-s <= 26*3600, "%s: %v in [%v, %v)", zone, sec, s, e)
			s2, _ := cal.find(e - 1)
			require.Equal(t, s, s2)
			sec = e
		}
	}
}

func TestFixedWindowOfTheDay(t *testing.T) {
	berlin := load(t, "Europe/Berlin")
	at := func(text string) time.Time {
		v, err := time.ParseInLocation("2006-01-02 15:04:05", text, berlin)
		require.NoError(t, err)
		return v
	}
	w := newWindow(t, FixedWindow{Limit: 3, Calendar: EveryDay, Location: berlin})
	for _, c := range []struct {
		at string
		n  int
		ok bool
	}{
		{"2026-03-28 23:59:59", 2, true}, {"2026-03-28 23:59:59", 2, false},
		{"2026-03-29 00:00:00", 3, true}, {"2026-03-29 23:59:59", 1, false}, // 23 hours
		{"2026-03-28 23:59:59", 1, false}, // late, and the day is over
		{"2026-03-30 00:00:00", 1, true},
		{"2026-10-25 00:00:00", 3, true}, {"2026-10-25 23:59:59", 1, false}, // 25 hours
		{"2026-10-26 00:00:00", 1, true},
	} {
		err := w.AllowAt(at(c.at), c.n)
		require.Equal(t, c.ok, err == nil, "%s: %v", c.at, err)
	}
	require.Equal(t, State{Limit: 3, Remaining: 2, NextIn: 24 * time.Hour, FullIn: 24 * time.Hour}, w.PeekAt(at("2026-10-26 00:00:00")))
	require.Equal(t, 24*time.Hour, w.Quota(at("2026-10-26 00:00:00"), spillway.Request{}).Window)
	r, err := w.ReserveAt(at("2026-10-26 23:00:00"), 3, 2*time.Hour)
	require.NoError(t, err)
	require.Equal(t, time.Hour, r.Delay())
	require.Error(t, w.AllowAt(at("2026-10-27 00:00:00"), 1), "reserved")
	r.CancelAt(at("2026-10-27 00:00:00"))
	require.NoError(t, w.AllowAt(at("2026-10-27 00:00:00"), 3))
	require.True(t, w.Idle(at("2026-10-28 00:00:00")))
}

// The wall clock is set back a day while the monotonic clock goes on: what was used up stays so, and the limit does not wait
// for a day to come again.
func TestFixedWindowClockSetBack(t *testing.T) {
	w := newWindow(t, FixedWindow{Limit: 3, Calendar: EveryDay})
	core := w.core.(*window)
	var s windowState
	m := func(ns int64, day int) moment {
		return moment{ns: horizon + ns, t: time.Date(2026, time.May, day, 12, 0, 0, 0, time.UTC)}
	}
	take := func(m moment) bool { _, _, ok := core.take(&s, m, 3, 0); return ok }
	require.True(t, take(m(0, 20)))
	require.False(t, take(m(1, 19)), "used up stays so")
	require.Equal(t, m(1, 19).t.Unix()-12*3600, s.start, "the window is that of the wall clock")
	require.True(t, take(m(2, 20)), "the day begins anew")
	require.False(t, take(m(1, 19)), "an arrival that is late on both clocks")
	require.False(t, take(m(3, 20)))
	require.True(t, take(m(4, 21)))
}
