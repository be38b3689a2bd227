package deadline

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
)

const ms = time.Millisecond

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newEstimator(t testing.TB, o *Options) *Estimator {
	t.Helper()
	e, err := New(o)
	require.NoError(t, err)
	e.sparse = 1 // every request counts
	return e
}

// late reports whether a request of key that arrives at now is refused, and is not a probe.
func late(e *Estimator, key string, now, deadline time.Time) bool {
	late, _, _ := e.Late(key, now, deadline.Sub(now))
	return late
}

// taught returns an Estimator that has seen n requests of key "a" take latency, all at start.
func taught(t testing.TB, n int, latency time.Duration) *Estimator {
	t.Helper()
	e := newEstimator(t, nil)
	for range n {
		e.Observe("a", latency, start)
	}
	return e
}

func estimate(t testing.TB, e *Estimator) time.Duration {
	t.Helper()
	d, known := e.Estimate("a")
	require.True(t, known)
	return d
}

func TestRejectsWhatCannotBe(t *testing.T) {
	_, err := New(&Options{MaxKeys: -1})
	require.EqualError(t, err, "deadline: MaxKeys: must be at least 0, got -1")
}

func TestTooLate(t *testing.T) {
	e := taught(t, warmUp, 10*ms)
	require.True(t, late(e, "a", start, start.Add(10*ms-1)))
	require.False(t, late(e, "a", start, start.Add(10*ms)))
	require.False(t, late(e, "b", start, start.Add(1)), "a key that was never seen")
	require.True(t, late(e, "a", start, start), "a deadline that has come")
	require.True(t, late(e, "b", start, start.Add(-1)), "a deadline that has passed, of any key")
}

func TestKnowsNothingBeforeTwentyRequests(t *testing.T) {
	e := taught(t, warmUp-1, 10*ms)
	_, known := e.Estimate("a")
	require.False(t, known)
	require.False(t, late(e, "a", start, start.Add(1)))
	e.Observe("a", 7*ms, start)
	require.Equal(t, 7*ms, estimate(t, e), "the least of them")
	require.True(t, late(e, "a", start, start.Add(1)))
}

func TestFollowsAServiceThatChanged(t *testing.T) {
	e := taught(t, warmUp, 200*ms)
	var n int
	for n = 0; estimate(t, e) > 20*ms; n++ {
		e.Observe("a", 10*ms, start)
	}
	require.Equal(t, 11, n, "a tenth")
	for n = 0; estimate(t, e) < 200*ms; n++ {
		e.Observe("a", time.Second, start)
	}
	require.InDelta(t, 1200, n, 100, "tenfold")
}

func TestProbes(t *testing.T) {
	e := taught(t, warmUp, 50*ms)
	refused := func(at time.Duration) bool { return late(e, "a", start.Add(at), start.Add(at+4*ms)) }
	require.True(t, refused(200*ms-1))
	require.False(t, refused(200*ms), "four times the estimate after it was learnt")
	require.True(t, refused(200*ms))
	require.True(t, refused(400*ms-1))
	require.False(t, refused(400*ms))
	require.True(t, refused(201*ms), "a clock that went back a little")
	require.False(t, refused(200*ms), "a clock that went back by more")
	require.False(t, refused(math.MaxInt64-4*ms), "a clock that leapt")
	require.True(t, refused(200*ms))
	e = taught(t, warmUp, 50*ms)
	require.True(t, late(e, "a", start.Add(time.Hour), start.Add(time.Hour+3*ms)), "too short for a probe")
}

func TestProbesAreBounded(t *testing.T) {
	for estimate, every := range map[time.Duration]time.Duration{ms: 10 * ms, time.Hour: time.Second} {
		e := taught(t, warmUp, estimate)
		probes := 0
		for at := time.Duration(0); at < 10*time.Second; at += ms {
			if !late(e, "a", start.Add(at), start.Add(at+estimate/2)) {
				probes++
			}
		}
		require.Equal(t, int(10*time.Second/every)-1, probes, estimate)
	}
}

// A service was slow, and is fast again. Nobody but the probes can tell.
func TestRefusingEverythingEnds(t *testing.T) {
	e := taught(t, warmUp, 200*ms)
	refused := 0
	now := start
	for ; estimate(t, e) > 20*ms; now = now.Add(ms) {
		if late(e, "a", now, now.Add(20*ms)) {
			refused++
			continue
		}
		e.Observe("a", 5*ms, now)
	}
	require.Less(t, now.Sub(start), 10*time.Second)
	require.Greater(t, refused, 1000)
}

// Clients whose time is too short for a route, and those who cut off each probe, cannot keep it closed for the others.
func TestARouteWithoutObservationsOpensAgain(t *testing.T) {
	for _, hopeless := range []time.Duration{100, 199 * ms} {
		e := taught(t, warmUp, 200*ms)
		now := start
		for late(e, "a", now, now.Add(10*ms)) {
			now = now.Add(ms)
			e.Late("a", now, hopeless) // takes the probe, if it can
			require.Less(t, now.Sub(start), time.Minute)
		}
		e.Observe("a", 10*ms, now)
		require.LessOrEqual(t, estimate(t, e), 100*ms, "for good")
		for range 1000 {
			now = now.Add(100 * ms)
			e.Observe("a", 15*ms, now)
			require.True(t, late(e, "a", now, now.Add(100)), "while requests are observed, nothing fades")
		}
		require.InDelta(t, float64(15*ms), float64(estimate(t, e)), float64(2*ms))
	}
}

// A probe that a later policy refuses is not lost.
func TestUnprobe(t *testing.T) {
	e := taught(t, warmUp, 50*ms)
	now := start.Add(time.Second)
	for range 3 {
		for range 2 {
			refused, probe, id := e.Late("a", now, 40*ms)
			require.False(t, refused)
			require.True(t, probe)
			require.True(t, late(e, "a", now, now.Add(40*ms)), "one at a time")
			e.Unprobe(id, now)
			now = now.Add(1)
		}
		require.True(t, late(e, "a", now, now.Add(40*ms)), "only every second one is given back")
		now = now.Add(200 * ms)
	}
}

// A service became slow. Its clients have little time and cut off every request; so nobody sees one finish.
func TestLearnsFromWhatIsCutOff(t *testing.T) {
	e := taught(t, warmUp, 5*ms)
	admitted := 0
	now := start
	for range 10_000 {
		now = now.Add(ms)
		if late(e, "a", now, now.Add(50*ms)) {
			continue
		}
		admitted++
		e.Unfinished("a", 50*ms, now)
	}
	require.Greater(t, estimate(t, e), 50*ms)
	require.Less(t, estimate(t, e), 51*ms)
	require.Less(t, admitted, 1500)
}

func TestCutOffEarlySaysNothing(t *testing.T) {
	e := taught(t, warmUp, 10*ms)
	for range 100 {
		e.Unfinished("a", 10*ms-2, start)
	}
	require.Equal(t, 10*ms, estimate(t, e))

	e = newEstimator(t, nil)
	for range warmUp {
		e.Unfinished("a", 10*ms, start)
	}
	require.Equal(t, 10*ms+1, estimate(t, e), "it teaches an Estimator that knows nothing")
	e.Unfinished("a", 10*ms, start)
	require.Equal(t, 10*ms+1, estimate(t, e))
	e.Unfinished("a", 10*ms+1, start)
	require.Greater(t, estimate(t, e), 10*ms+1, "it would have taken longer")
	e.Unfinished("a", math.MaxInt64, start)
}

func TestKeysAreBounded(t *testing.T) {
	e := newEstimator(t, &Options{MaxKeys: 3})
	for i := range 10 {
		for range warmUp {
			e.Observe(fmt.Sprint("key", i), ms, start)
		}
	}
	for i := range 10 {
		_, known := e.Estimate(fmt.Sprint("key", i))
		require.Equal(t, i < 3, known, i)
		require.Equal(t, i < 3, late(e, fmt.Sprint("key", i), start, start.Add(1)), i)
	}
	require.Len(t, *e.tracks.Load(), 3)
}

func TestKeysAreApart(t *testing.T) {
	e := taught(t, warmUp, 10*ms)
	for range warmUp {
		e.Observe("b", ms, start)
	}
	require.True(t, late(e, "a", start, start.Add(5*ms)))
	require.False(t, late(e, "b", start, start.Add(5*ms)))
	require.Equal(t, uintptr(128), unsafe.Sizeof(track{}), "two cache lines")
}

// A key may be part of something large that is used again.
func TestKeepsNoKeyOfItsCaller(t *testing.T) {
	e := newEstimator(t, nil)
	buffer := []byte("a")
	e.Observe(unsafe.String(&buffer[0], 1), ms, start)
	buffer[0] = 'b'
	for range warmUp - 1 {
		e.Observe("a", ms, start)
	}
	require.Equal(t, ms, estimate(t, e))
}

func TestExtremes(t *testing.T) {
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1} {
		e := taught(t, 100, d)
		require.Equal(t, leastEstimate, estimate(t, e))
	}
	e := taught(t, 100, math.MaxInt64)
	require.Equal(t, mostEstimate, estimate(t, e))
	require.True(t, late(e, "a", start, start.Add(time.Hour)))
	require.False(t, late(e, "a", start, start.Add(math.MaxInt64)))
	require.True(t, late(e, "a", time.Unix(1<<60, 0), time.Unix(-1<<60, 0)))
}

func TestDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	e := taught(t, warmUp, 10*ms)
	now := start
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(ms)
		late(e, "a", now, now.Add(ms))
		late(e, "unknown", now, now.Add(ms))
		e.Observe("a", 9*ms, now)
		e.Unfinished("a", 11*ms, now)
	}))
}

func TestConcurrentUse(t *testing.T) {
	e := newEstimator(t, &Options{MaxKeys: 50})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				key := fmt.Sprint((i*7 + g) % 100)
				now := start.Add(time.Duration(i) * ms)
				if !late(e, key, now, now.Add(5*ms)) {
					e.Observe(key, time.Duration(i%20)*ms, now)
					e.Unfinished(key, time.Duration(i%10)*ms, now)
				}
				e.Estimate(key)
			}
		})
	}
	wg.Wait()
	require.Len(t, *e.tracks.Load(), 50)
	for key, track := range *e.tracks.Load() {
		estimate, known := track.estimate()
		require.True(t, known, key)
		require.LessOrEqual(t, estimate, 20*ms, key)
	}
}

// The first twenty are all needed, whatever comes between them.
func TestWarmUpLosesNothing(t *testing.T) {
	for range 200 {
		e := newEstimator(t, nil)
		var wg sync.WaitGroup
		for i := range warmUp {
			wg.Go(func() { e.Observe("a", time.Duration(i+1)*ms, start) })
		}
		wg.Wait()
		require.Equal(t, ms, estimate(t, e))
	}
}

// Of requests that are too late at the same time, one is the probe.
func TestOneProbeAtATime(t *testing.T) {
	e := taught(t, warmUp, 50*ms)
	now := start.Add(time.Second)
	var wg sync.WaitGroup
	var mu sync.Mutex
	probes := 0
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if !late(e, "a", now, now.Add(40*ms)) {
					mu.Lock()
					probes++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, probes)
}
