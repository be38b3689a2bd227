package stats

import (
	"iter"
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
)

// epoch is where simulated time begins in these tests.
var epoch = time.Unix(0, 0)

func newWindow(t testing.TB, bucket time.Duration, n int) *Window {
	t.Helper()
	w, err := NewWindow(bucket*time.Duration(n), n)
	require.NoError(t, err)
	return w
}

func addAll(w *Window, now time.Time, vs ...int64) {
	for _, v := range vs {
		w.Add(now, v)
	}
}

func sums(seq iter.Seq[Bucket]) []int64 {
	var s []int64
	for b := range seq {
		s = append(s, b.Sum)
	}
	return s
}

func TestWindowRejectsWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		span    time.Duration
		buckets int
		err     string
	}{
		{time.Second, 0, "stats: Window: buckets must be at least 1 and at most 65536, got 0"},
		{time.Second, -1, "stats: Window: buckets must be at least 1 and at most 65536, got -1"},
		{time.Hour, 65537, "stats: Window: buckets must be at least 1 and at most 65536, got 65537"},
		{0, 1, "stats: Window: span must be a positive multiple of buckets (1) nanoseconds, got 0s"},
		{-time.Second, 10, "stats: Window: span must be a positive multiple of buckets (10) nanoseconds, got -1s"},
		{time.Second, 3, "stats: Window: span must be a positive multiple of buckets (3) nanoseconds, got 1s"},
		{5, 10, "stats: Window: span must be a positive multiple of buckets (10) nanoseconds, got 5ns"},
	} {
		w, err := NewWindow(c.span, c.buckets)
		require.EqualError(t, err, c.err)
		require.Nil(t, w)
	}
	w, err := NewWindow(5*time.Second, 50)
	require.NoError(t, err)
	w.Add(epoch, 1)
	require.EqualValues(t, 1, w.Total(epoch.Add(5*time.Second-1)).Count)
	require.Zero(t, w.Total(epoch.Add(5*time.Second)).Count)
}

func TestWindowRolls(t *testing.T) {
	const d = 50 * time.Millisecond
	w, now := newWindow(t, d, 3), epoch
	addAll(w, now, 1)
	require.Equal(t, []int64{0, 0, 1}, sums(w.Buckets(now)))
	now = now.Add(d)
	addAll(w, now, 2, 3)
	require.Equal(t, []int64{0, 1, 5}, sums(w.Buckets(now)))
	now = now.Add(d)
	addAll(w, now, 4, 5, 6)
	require.Equal(t, []int64{1, 5, 15}, sums(w.Buckets(now)))
	now = now.Add(d)
	addAll(w, now, 7)
	require.Equal(t, []int64{5, 15, 7}, sums(w.Buckets(now)))
}

func TestWindowCompleteLeavesTheCurrentBucketOut(t *testing.T) {
	const d = 50 * time.Millisecond
	w, now := newWindow(t, d, 3), epoch
	addAll(w, now, 1)
	require.Equal(t, []int64{0, 0}, sums(w.Complete(now)))
	require.Equal(t, []int64{0, 1}, sums(w.Complete(now.Add(d))))
	require.Equal(t, []int64{1, 0}, sums(w.Complete(now.Add(2*d))))
	require.Equal(t, []int64{0, 0}, sums(w.Complete(now.Add(3*d))))
	addAll(w, now.Add(3*d), 1)
	require.Equal(t, []int64{0, 0}, sums(w.Complete(now.Add(13*d))))
}

func TestWindowOfFour(t *testing.T) {
	const d = 50 * time.Millisecond
	w, now := newWindow(t, d, 4), epoch
	for step := range 4 {
		if step > 0 {
			now = now.Add(d)
		}
		for v := range step + 1 {
			w.Add(now, int64(v))
		}
	}
	require.Equal(t, int64(10), w.Total(now).Sum)
	require.Equal(t, int64(10), w.Total(now).Count)
	require.Equal(t, []int64{0, 1, 3}, sums(w.Complete(now)), "0+1+3 = 4 without the current bucket")
}

func TestWindowAlignsToItsFirstInstant(t *testing.T) {
	const ms = time.Millisecond
	w, now := newWindow(t, 30*ms, 3), epoch.Add(7*ms)
	addAll(w, now, 1)
	require.Equal(t, []int64{0, 0, 1}, sums(w.Buckets(now)))
	now = now.Add(45 * ms)
	addAll(w, now, 2, 3)
	require.Equal(t, []int64{0, 1, 5}, sums(w.Buckets(now)))
	now = now.Add(20 * ms)
	addAll(w, now, 4, 5, 6)
	require.Equal(t, []int64{1, 5, 15}, sums(w.Buckets(now)))
	now = now.Add(100 * ms)
	addAll(w, now, 7, 8, 9)
	require.Equal(t, []int64{0, 0, 24}, sums(w.Buckets(now)))
}

func TestWindowAfterLongIdle(t *testing.T) {
	const ms, d = time.Millisecond, 100 * time.Millisecond
	w := newWindow(t, d, 3)
	now := epoch
	w.Total(now)
	for _, wait := range []time.Duration{150, 300, 600} {
		now = now.Add(wait * ms)
		w.Add(now, 1)
		require.Equal(t, []int64{0, 0, 1}, sums(w.Buckets(now)), "after %v", wait*ms)
		require.Equal(t, int64(1), w.at(now)%3, "after %v: the second slot of a turn of three", wait*ms)
	}
	now = now.Add(5 * time.Minute)
	w.Add(now, 1)
	now = now.Add(d)
	w.Add(now, 1)
	require.Equal(t, []int64{0, 1, 1}, sums(w.Buckets(now)))
	require.Equal(t, int64(2), w.Total(now).Count)
}

func TestWindowBucketFields(t *testing.T) {
	w, now := newWindow(t, time.Second, 2), epoch
	addAll(w, now.Add(500*time.Millisecond), 5, -3, 4)
	now = now.Add(2 * time.Second)
	addAll(w, now, 7)
	var got []Bucket
	for b := range w.Buckets(now) {
		got = append(got, b)
	}
	first := epoch.Add(500 * time.Millisecond)
	require.Equal(t, []Bucket{
		{Start: first, Count: 3, Sum: 6, Min: -3, Max: 5},
		{Start: first.Add(time.Second), Count: 1, Sum: 7, Min: 7, Max: 7},
	}, got)
	require.Equal(t, Bucket{Start: first, Count: 4, Sum: 13, Min: -3, Max: 7}, w.Total(now))
	empty := w.Total(now.Add(time.Minute))
	require.Equal(t, Bucket{Start: first.Add(time.Minute)}, empty)
}

func TestWindowLateSamples(t *testing.T) {
	const d = time.Second
	w := newWindow(t, d, 4)
	now := epoch.Add(10 * d)
	w.Add(epoch, 1)
	w.Add(now, 10)
	w.Add(now.Add(-2*d), 8) // late, and still in the window
	w.Add(now.Add(-d/2), 9)
	require.Equal(t, []int64{0, 8, 9, 10}, sums(w.Buckets(now)))
	w.Add(now.Add(-4*d), 100) // its place is taken by the current bucket
	w.Add(epoch.Add(-time.Hour), 1000)
	require.Equal(t, []int64{0, 8, 9, 10}, sums(w.Buckets(now)))
	require.Equal(t, []int64{0, 0, 8, 9}, sums(w.Buckets(now.Add(-d))), "a reader whose clock is behind")
}

func TestWindowBeforeItsFirstInstant(t *testing.T) {
	w := newWindow(t, time.Second, 3)
	w.Add(epoch, 1)
	w.Add(epoch.Add(-1), 2)
	w.Add(epoch.Add(-time.Second), 3)
	w.Add(epoch.Add(-time.Second-1), 4)
	require.Equal(t, []int64{4, 5, 1}, sums(w.Buckets(epoch)))
}

func TestWindowTakesAnyTime(t *testing.T) {
	for name, base := range map[string]time.Time{"zero": {}, "epoch": epoch, "now": time.Now(), "far": time.Unix(1<<40, 0)} {
		t.Run(name, func(t *testing.T) {
			w := newWindow(t, time.Second, 3)
			w.Add(base, 1)
			w.Add(base.Add(1500*time.Millisecond), 2)
			require.Equal(t, []int64{0, 1, 2}, sums(w.Buckets(base.Add(1500*time.Millisecond))))
		})
	}
}

func TestWindowAtTheEndsOfTime(t *testing.T) {
	ends := []time.Time{{}, epoch, time.Unix(math.MaxInt64>>1, 0), time.Unix(math.MinInt64>>1, 0), epoch.Add(math.MaxInt64), epoch.Add(math.MinInt64)}
	for _, span := range []time.Duration{1, 3, time.Second, math.MaxInt64} {
		w, err := NewWindow(span, 1)
		require.NoError(t, err)
		w.Add(epoch, 1)
		for _, a := range ends {
			for _, b := range ends {
				w.Add(a, 2)
				w.Add(b, 3)
				n := 0
				for range w.Buckets(a) {
					n++
				}
				require.Equal(t, 1, n)
				w.Total(b)
			}
		}
	}
}

func TestWindowKeepsTheEndsOfTimeApart(t *testing.T) {
	for _, span := range []time.Duration{1, 3, time.Second, time.Hour} {
		w := newWindow(t, span, 1)
		first, last := epoch.Add(math.MinInt64), epoch.Add(math.MaxInt64)
		w.Total(epoch)
		w.Add(first, 1)
		require.Equal(t, int64(1), w.Total(first).Count, "span %v", span)
		require.Zero(t, w.Total(last).Count, "span %v", span)
		w.Add(last, 1)
		require.Equal(t, int64(1), w.Total(last).Count, "span %v", span)
		w.Add(first, 1)
		require.Equal(t, int64(1), w.Total(last).Count, "span %v", span)
		require.Negative(t, w.at(first))
		require.Positive(t, w.at(last))
	}
}

func TestWindowStopsWhenTheReaderDoes(t *testing.T) {
	w := newWindow(t, time.Second, 5)
	n := 0
	for range w.Buckets(epoch) {
		if n++; n == 2 {
			break
		}
	}
	require.Equal(t, 2, n)
}

func TestWindowDoesNotAllocate(t *testing.T) {
	require.Equal(t, uintptr(128), unsafe.Sizeof(bucket{}))
	if race.Enabled {
		t.Skip("the race detector allocates; run without -race to check allocations")
	}
	w, now := newWindow(t, time.Second, 10), epoch
	w.Add(now, 1)
	require.Zero(t, testing.AllocsPerRun(100, func() { w.Add(now, 2) }))
	late := now.Add(-time.Second)
	w.Add(late, 1)
	require.Zero(t, testing.AllocsPerRun(100, func() { w.Add(late, 2) }))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for b := range w.Complete(now) {
			if b.Count < 0 {
				t.Error("negative count")
			}
		}
		w.Total(now)
	}))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		now = now.Add(time.Second)
		w.Add(now, 1)
	}), 1.0, "one per bucket")
}
