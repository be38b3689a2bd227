package limiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// rules returns a rule of each kind, with nothing set that has a default, and with every default filled in.
func rules() map[Rule]Rule {
	const s = time.Second
	second := Per(9, s)
	return map[Rule]Rule{
		Bucket{Rate: second}:                         Bucket{Rate: second, Burst: 9, Name: "token bucket"},
		FixedWindow{Limit: 9, Period: s}:             FixedWindow{Limit: 9, Period: s, Name: "fixed window"},
		FixedWindow{Limit: 9, Calendar: EveryMinute}: FixedWindow{Limit: 9, Calendar: EveryMinute, Location: time.UTC, Name: "fixed window"},
		SlidingWindow{Limit: 9, Window: s}:           SlidingWindow{Limit: 9, Window: s, Buckets: 60, Name: "sliding window"},
		SlidingLog{Limit: 9, Window: s}:              SlidingLog{Limit: 9, Window: s, Name: "sliding log"},
		WarmUp{Rate: second}:                         WarmUp{Rate: second, ColdFactor: 3, MaxCost: 9, Name: "warm-up"},
		Shaper{Rate: second}:                         Shaper{Rate: second, MaxWait: s, MaxQueue: 128, MaxCost: 9, Name: "shaper"},
		Concurrency{Limit: 9}:                        Concurrency{Limit: 9, Name: "concurrency"},
		Queue{Limit: 9, MaxQueue: 1}: Queue{
			Limit: 9, MaxQueue: 1, MaxWait: s, Target: 5 * time.Millisecond, Interval: 100 * time.Millisecond, Name: "queue",
		},
	}
}

// The rule in force has its defaults, makes the same limit again, and can be put back. What cannot change is an error.
func TestRuleIsWhatTuneTakes(t *testing.T) {
	for rule, full := range rules() {
		l := spillway.Must(New(rule))
		require.Equal(t, full, l.Rule())
		require.Equal(t, full, spillway.Must(New(full)).Rule())
		require.NoError(t, l.Tune(rule), "zero fields stand for the same defaults")
		require.NoError(t, l.Tune(l.Rule()))
		require.True(t, l.Idle(time.Now()), "%T: nothing was taken", rule)
		require.Equal(t, int64(9), l.PeekAt(time.Now()).Limit)
		for other := range rules() {
			if other != rule {
				require.ErrorContains(t, l.Tune(other), ": Tune: ", "%T to %T", rule, other)
			}
		}
		require.Equal(t, full, l.Rule(), "%T: an error changes nothing", rule)

		k, err := NewKeyed(rule, nil)
		if err != nil {
			require.ErrorContains(t, err, "use a Registry")
			continue
		}
		require.Equal(t, full, k.Rule())
		require.NoError(t, k.Tune(full))
	}
}

// The name is in metrics and header fields, so it stays.
func TestNameCannotChange(t *testing.T) {
	for _, c := range []struct{ old, renamed Rule }{
		{Bucket{Rate: Per(1, 1), Name: "a"}, Bucket{Rate: Per(1, 1)}},
		{FixedWindow{Limit: 1, Period: 1, Name: "a"}, FixedWindow{Limit: 1, Period: 1}},
		{SlidingWindow{Limit: 1, Window: 60, Name: "a"}, SlidingWindow{Limit: 1, Window: 60}},
		{SlidingWindow{Limit: 1, Window: 60}, SlidingLog{Limit: 1, Window: 60}},
		{WarmUp{Rate: Per(1, 1), Name: "a"}, WarmUp{Rate: Per(1, 1)}},
		{Shaper{Rate: Per(1, 1), Name: "a"}, Shaper{Rate: Per(1, 1)}},
		{Concurrency{Limit: 1, Name: "a"}, Concurrency{Limit: 1}},
		{Queue{Limit: 1, MaxQueue: 1, Name: "a"}, Queue{Limit: 1, MaxQueue: 1}},
	} {
		l := spillway.Must(New(c.old))
		require.ErrorContains(t, l.Tune(c.renamed), "Tune: Name must stay ", "%T", c.old)
		require.NoError(t, l.Tune(c.old))
	}
}

// A rule replaces all figures of a queue while it runs: how many may wait, for how long, and who is next.
func TestQueueIsTunedWhileInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Queue{Limit: 1, MaxQueue: 2, MaxWait: time.Minute})
		l := newLine(t, q)
		for _, who := range []string{"runs", "a", "b", "full"} {
			l.join(t.Context(), who, 1, spillway.Normal)
		}
		require.Equal(t, "queue full", l.reason("full"))
		require.NoError(t, q.Tune(Queue{Limit: 1, MaxQueue: 4, MaxWait: time.Second, Order: LIFO}))
		l.join(t.Context(), "c", 1, spillway.Normal)
		l.join(t.Context(), "d", 1, spillway.Normal)
		q.Release(1)
		synctest.Wait()
		require.Equal(t, []string{"runs", "d"}, l.in, "the last to come is first now")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, "wait too long", l.reason("c"), "it came after MaxWait was lowered")
		require.Equal(t, int64(2), q.Stats().Waiting, "the others may wait for a minute")

		require.NoError(t, q.Tune(Queue{Limit: 1, MaxQueue: 1, MaxWait: time.Second}))
		require.Equal(t, 1, q.Rule().(Queue).MaxQueue)
		require.Equal(t, int64(2), q.Stats().Waiting, "waiting requests keep their places")
		l.join(t.Context(), "e", 1, spillway.Normal)
		require.Equal(t, "queue full", l.reason("e"))
		for range 3 {
			q.Release(1)
			synctest.Wait()
		}
		require.Equal(t, []string{"runs", "d", "a", "b"}, l.in, "the first to come is first again")
		l.all.Wait()
	})
}

// MaxWait and MaxQueue of a shaper change without a change of its pace.
func TestShaperIsTunedWhileInUse(t *testing.T) {
	s := newShaper(t, Shaper{Rate: Per(1, time.Second), MaxWait: time.Minute})
	for want := range time.Duration(3) {
		r, err := s.ReserveAt(after(0), 1, time.Hour)
		require.NoError(t, err)
		require.Equal(t, want*time.Second, r.Delay())
	}
	require.NoError(t, s.TuneAt(after(0), Shaper{Rate: Per(1, time.Second), MaxWait: 2 * time.Second}))
	_, err := s.ReserveAt(after(0), 1, time.Hour)
	require.ErrorContains(t, err, "wait too long")
	require.NoError(t, s.TuneAt(after(0), Shaper{Rate: Per(1, time.Second), MaxWait: time.Minute, MaxQueue: 2}))
	_, err = s.ReserveAt(after(0), 1, time.Hour)
	require.ErrorContains(t, err, "queue full")
	require.NoError(t, s.TuneAt(after(0), Shaper{Rate: Per(1, time.Second), MaxWait: time.Minute}))
	r, err := s.ReserveAt(after(0), 1, time.Hour)
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, r.Delay())
}

// The present window keeps its beginning and gets the new length.
func TestFixedWindowGetsAnotherPeriod(t *testing.T) {
	const s = time.Second
	w := newWindow(t, FixedWindow{Limit: 2, Period: s})
	require.NoError(t, w.AllowAt(after(0), 2))
	require.Error(t, w.AllowAt(after(0), 1))
	require.NoError(t, w.TuneAt(after(0), FixedWindow{Limit: 3, Period: time.Minute}))
	play(t, w, []call{{0, 1, true}, {0, 1, false}, {time.Minute - 1, 1, false}, {time.Minute, 3, true}, {time.Minute, 1, false}})
	require.NoError(t, w.TuneAt(after(time.Minute), FixedWindow{Limit: 3, Period: s}))
	play(t, w, []call{{time.Minute + s - 1, 1, false}, {time.Minute + s, 3, true}})
	require.ErrorContains(t, w.Tune(FixedWindow{Limit: 3, Calendar: EveryDay}), "Period must stay set")
}

// A place that is reserved is held until it is given back, however much later.
func TestPlacesAreReserved(t *testing.T) {
	for _, rule := range []Rule{Concurrency{Limit: 3}, Queue{Limit: 3, MaxQueue: 1}} {
		l := spillway.Must(New(rule))
		r, err := l.ReserveAt(after(0), 2, time.Hour)
		require.NoError(t, err)
		require.Zero(t, r.Delay())
		_, err = l.ReserveAt(after(0), 2, time.Hour)
		require.ErrorContains(t, err, "limit reached", "nobody knows when there is room")
		r.RefundAt(after(time.Hour), 1)
		require.Equal(t, int64(1), l.Stats().InFlight)
		r.CancelAt(after(2 * time.Hour))
		require.Zero(t, l.Stats().InFlight)
		r.CancelAt(after(2 * time.Hour))
		require.NoError(t, l.AllowAt(after(0), 3))
		require.Error(t, l.AllowAt(after(0), 1))
		l.Release(3)
		var cost *CostError
		require.ErrorAs(t, l.AllowAt(after(0), 4), &cost)
		require.Equal(t, spillway.Quota{Name: l.Stats().Name, Limit: 3, Remaining: 3}, l.Quota(after(0), spillway.Request{}))
		require.Panics(t, func() { l.Release(1) })
		require.Panics(t, func() { l.Release(-1) })
		require.True(t, l.Idle(after(0)))
	}
}
