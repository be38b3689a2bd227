package overload

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func rng() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// count returns how many of times lie in [from, to).
func count(times []time.Duration, from, to time.Duration) float64 {
	n := 0
	for _, t := range times {
		if t >= from && t < to {
			n++
		}
	}
	return float64(n)
}

func TestStepArrivesEvenly(t *testing.T) {
	times := Step.arrivals(rng(), 2, 1000, 10*time.Second)
	require.Equal(t, schedule(rng(), 2000, 10*time.Second), times, "the same as without a shape")
	require.InDelta(t, 10_000, count(times, 0, 5*time.Second), 500)
}

func TestRampRisesFromTheLightLoad(t *testing.T) {
	times := Ramp.arrivals(rng(), 4.5, 1000, 10*time.Second)
	require.True(t, slices.IsSorted(times))
	require.InDelta(t, 25_000, len(times), 1000, "2.5 times the capacity in the mean")
	require.InDelta(t, 700, count(times, 0, time.Second), 150)
	require.InDelta(t, 4300, count(times, 9*time.Second, 10*time.Second), 300)
	require.InDelta(t, 500, Ramp.loadAt(0, time.Second, 0.1)*1000, 0.1, "down, too")
}

func TestBurstComesAndGoes(t *testing.T) {
	times := Burst.arrivals(rng(), 5, 1000, 6*time.Second)
	require.True(t, slices.IsSorted(times))
	for from := time.Duration(0); from < 6*time.Second; from += burstEvery {
		require.InDelta(t, 1500, count(times, from, from+burstFor), 200)
		require.InDelta(t, 600, count(times, from+burstFor, from+burstEvery), 150)
	}
}

func TestShapesAreChecked(t *testing.T) {
	for _, s := range append(Shapes(), "") {
		require.NoError(t, s.check())
	}
	require.ErrorContains(t, Shape("square").check(), "no shape")
	_, err := (&Config{}).Measure(t.Context(), Plan{Work: "cpu", Each: time.Second, Shape: "square"}, nil)
	require.ErrorContains(t, err, "no shape")
}

func TestStormAsksAgain(t *testing.T) {
	var asked atomic.Int64
	g := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}, 0)
	g.tries = Storm.tries()
	var c tally
	first := g.run(context.Background(), 0, []time.Duration{0}, &c)
	g.wait()
	require.Equal(t, refused, first[0].kind)
	require.Len(t, g.again, 2, "until it is answered")
	require.Equal(t, []kind{refused, answered}, []kind{g.again[0].kind, g.again[1].kind})
	require.GreaterOrEqual(t, g.again[0].at, stormBackoff)
	require.Equal(t, g.again[1].at-first[0].at, g.again[1].waited, "what the client has waited in all")
	require.Equal(t, int64(3), c.sent.Load())
	require.Equal(t, int64(3), c.ended.Load())
	require.Equal(t, int64(2), c.refused.Load())
}

func TestStormGivesUp(t *testing.T) {
	g := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, 0)
	g.tries = Storm.tries()
	g.run(context.Background(), 0, []time.Duration{0}, &tally{})
	g.wait()
	require.Len(t, g.again, stormTries)
}

func TestWhoWaitedTooLongIsNotServedInTime(t *testing.T) {
	g := serve(t, func(http.ResponseWriter, *http.Request) {}, 0)
	s := sample{}
	g.one(&s, &tally{})
	require.True(t, s.good())
	s.waited = defaultSLO
	g.one(&s, &tally{})
	require.Equal(t, answered, s.kind)
	require.False(t, s.good())
}

func TestRequestsAskedAgainAreSortedIn(t *testing.T) {
	g := &guardRun{
		again: []sample{{at: 5}, {at: 15}, {at: 25}, {at: 2}},
		stretches: []*stretch{
			{from: 0, to: 10, samples: []sample{{at: 1}, {at: 6}}},
			{from: 10, to: 20, samples: []sample{{at: 12}, {at: 16}}},
		},
	}
	g.sortIn()
	var at [][]time.Duration
	for _, l := range g.stretches {
		var times []time.Duration
		for _, s := range l.samples {
			times = append(times, s.at)
		}
		at = append(at, times)
	}
	require.Equal(t, [][]time.Duration{{1, 2, 5, 6}, {12, 15, 16}}, at, "what came after the end is left out")
}

func TestStormIsSeenOut(t *testing.T) {
	r := &runner{opts: &options{Plan: Plan{Loads: []float64{0.8, 3, 0.8}, Settle: time.Second}}}
	require.Equal(t, []bool{true, true, true}, []bool{r.settles(0), r.settles(1), r.settles(2)})
	r.opts.Shape = Storm
	require.Equal(t, []bool{true, false, false}, []bool{r.settles(0), r.settles(1), r.settles(2)})
}

func TestRateRefusesWhatComesFaster(t *testing.T) {
	h, view, err := Rate(0.5, 100).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.NoError(t, err)
	codes := map[int]int{}
	for range 100 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		codes[w.Code]++
	}
	require.GreaterOrEqual(t, codes[http.StatusOK], 5, "a tenth of a second of 50 a second, and what flows in meanwhile")
	require.Less(t, codes[http.StatusOK], 60, "even if this takes a second")
	require.Equal(t, int64(codes[http.StatusOK]), *view().Admitted)
	require.Equal(t, int64(codes[http.StatusServiceUnavailable]), *view().Refused)
}

func TestRateNeedsTheCapacity(t *testing.T) {
	c := &Config{}
	g, err := c.guard("rate:1")
	require.NoError(t, err, "the name is right before the capacity is known")
	_, _, err = g.Wrap(nil)
	require.ErrorContains(t, err, "above 0")
	c.capacity = 100
	g, err = c.guard("rate:0.9")
	require.NoError(t, err)
	require.Equal(t, "rate:0.9", g.Name)
	_, _, err = g.Wrap(nil)
	require.NoError(t, err)
}
