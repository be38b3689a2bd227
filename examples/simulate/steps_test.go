package main

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/policytest"
)

const ms = time.Millisecond

func near(t *testing.T, name string, want, got float64) {
	t.Helper()
	if math.Abs(want-got) > 1e-9 {
		t.Errorf("%s: want %v, got %v", name, want, got)
	}
}

func TestStepGradient2(t *testing.T) {
	warm := func(limit, long float64) gradient2 { return gradient2{limit: limit, long: long, seen: gradient2Warm} }
	weight := 2.0 / (gradient2Window + 1)
	for name, c := range map[string]struct {
		from        gradient2
		x           sample
		limit, long float64
	}{
		"the first sample is the mean":   {gradient2{limit: 20}, sample{latency: 10 * ms, inFlight: 20}, 20.8, 0.01},
		"as always: room for the queue":  {warm(50, 0.01), sample{latency: 10 * ms, inFlight: 50}, 50.8, 0.01},
		"tolerated: still no less":       {warm(50, 0.01), sample{latency: 14 * ms, inFlight: 50}, 50.8, 0.01 + 0.004*weight},
		"ten times as long: the least":   {warm(100, 0.01), sample{latency: 100 * ms, inFlight: 100}, 100*0.8 + 54*0.2, 0.01 + 0.09*weight},
		"never below the minimum":        {warm(20, 0.01), sample{latency: 100 * ms, inFlight: 20}, 20, 0.01 + 0.09*weight},
		"never above the maximum":        {warm(200, 0.01), sample{latency: 10 * ms, inFlight: 200}, 200, 0.01},
		"not tried: stays":               {warm(50, 0.01), sample{latency: 100 * ms, inFlight: 24}, 50, 0.01 + 0.09*weight},
		"an overload that is over fades": {warm(50, 0.1), sample{latency: 10 * ms, inFlight: 1}, 50, (0.1 - 0.09*weight) * gradient2Decay},
	} {
		got := stepGradient2(c.from, c.x)
		near(t, name+": limit", c.limit, got.limit)
		near(t, name+": long", c.long, got.long)
	}
}

func TestStepVegas(t *testing.T) {
	at := func(limit float64) vegas { return vegas{limit: limit, least: 10 * ms, jitter: 0.5} }
	for name, c := range map[string]struct {
		from  vegas
		x     sample
		limit float64
		least time.Duration
	}{
		"the first sample is the least":   {vegas{limit: 20, jitter: 0.5}, sample{latency: 10 * ms, inFlight: 20}, 20, 10 * ms},
		"a lesser one replaces it":        {at(20), sample{latency: 9 * ms, inFlight: 20}, 20, 9 * ms},
		"nobody queues: a leap":           {at(20), sample{latency: 10 * ms, inFlight: 20}, 26, 10 * ms},
		"a leap of a limit of hundreds":   {at(200), sample{latency: 10 * ms, inFlight: 200}, 212, 10 * ms},
		"2 queue: one more":               {at(20), sample{latency: 11 * ms, inFlight: 20}, 21, 10 * ms},
		"4 queue: stays":                  {at(20), sample{latency: 12 * ms, inFlight: 20}, 20, 10 * ms},
		"10 queue: one less":              {at(20), sample{latency: 20 * ms, inFlight: 20}, 19, 10 * ms},
		"not tried: stays":                {at(20), sample{latency: 20 * ms, inFlight: 9}, 20, 10 * ms},
		"dropped: one less, though quick": {at(20), sample{latency: 10 * ms, inFlight: 1, dropped: true}, 19, 10 * ms},
		"never below one":                 {at(1), sample{latency: 10 * ms, inFlight: 1, dropped: true}, 1, 10 * ms},
		"never above the maximum":         {at(999), sample{latency: 10 * ms, inFlight: 999}, vegasMax, 10 * ms},
	} {
		got := stepVegas(c.from, c.x, 0.75)
		near(t, name+": limit", c.limit, got.limit)
		if got.least != c.least || got.jitter != c.from.jitter {
			t.Errorf("%s: want least %v, got %+v", name, c.least, got)
		}
	}
}

func TestVegasForgetsTheLeastLatency(t *testing.T) {
	v := vegas{limit: 20, least: 10 * ms, jitter: 0.5, samples: 298} // the 300th is due: 0.5 · 30 · 20
	v = stepVegas(v, sample{latency: 12 * ms, inFlight: 20}, 0.75)
	if v.least != 10*ms || v.samples != 299 {
		t.Fatalf("one early: %+v", v)
	}
	v = stepVegas(v, sample{latency: 50 * ms, inFlight: 20}, 0.75)
	if want := (vegas{limit: 20, least: 50 * ms, jitter: 0.75}); v != want {
		t.Fatalf("want %+v, got %+v", want, v)
	}
}

func TestStepAIMD(t *testing.T) {
	for name, c := range map[string]struct {
		from float64
		x    sample
		to   float64
	}{
		"tried: one more":         {50, sample{latency: ms, inFlight: 25}, 51},
		"not tried: stays":        {50, sample{latency: ms, inFlight: 24}, 50},
		"dropped: a tenth less":   {50, sample{latency: ms, inFlight: 50, dropped: true}, 45},
		"5 s are in time":         {50, sample{latency: 5 * time.Second, inFlight: 50}, 51},
		"more than 5 s are not":   {50, sample{latency: 5*time.Second + 1, inFlight: 50}, 45},
		"whole requests":          {55, sample{dropped: true}, 49},
		"never below the minimum": {20, sample{dropped: true}, aimdMin},
		"never above the maximum": {200, sample{latency: ms, inFlight: 200}, aimdMax},
	} {
		near(t, name, c.to, stepAIMD(c.from, c.x))
	}
}

// The suite wants every new policy to admit what one that has seen requests admits, so it cannot be asked about limits that
// learn. They differ from the fixed one in nothing else.
func TestLimitKeepsTheContract(t *testing.T) {
	policytest.Run(t, func() spillway.Policy { return newLimit("fixed", 3, nil) })
}

func TestLimitFollowsWhatItLearns(t *testing.T) {
	var learned []sample
	l := newLimit("test", 2, func(x sample) float64 {
		learned = append(learned, x)
		return 1.9
	})
	admit := func() error {
		_, err := l.Admit(t.Context(), spillway.Request{})
		return err
	}
	if err := errors.Join(admit(), admit()); err != nil {
		t.Fatal(err)
	}
	if err := admit(); !errors.Is(err, spillway.ErrRejected) {
		t.Errorf("a third while two run: %v", err)
	}
	l.Done(spillway.Request{}, 1, spillway.Result{Outcome: spillway.Ignored, Latency: ms})
	l.Done(spillway.Request{}, 2, spillway.Result{Outcome: spillway.Dropped, Latency: ms})
	if want := []sample{{latency: ms, inFlight: 2, dropped: true}}; !slices.Equal(want, learned) {
		t.Errorf("want %v, got %v", want, learned)
	}
	if err := admit(); err != nil {
		t.Error(err)
	}
	if err := admit(); !errors.Is(err, spillway.ErrRejected) {
		t.Errorf("a second over a limit of one: %v", err)
	}
}
