package stats

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
)

func newHistogram(t testing.TB, o *HistogramOptions) *Histogram {
	t.Helper()
	h, err := NewHistogram(o)
	require.NoError(t, err)
	return h
}

func TestHistogramRejectsWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		o   HistogramOptions
		err string
	}{
		{HistogramOptions{Buckets: -1}, "stats: Histogram: Buckets must be at least 1 and at most 65536, got -1"},
		{HistogramOptions{Buckets: 65537}, "stats: Histogram: Buckets must be at least 1 and at most 65536, got 65537"},
		{HistogramOptions{Span: -time.Second}, "stats: Histogram: Span must be a positive multiple of Buckets (8) nanoseconds, got -1s"},
		{HistogramOptions{Span: time.Second, Buckets: 3}, "stats: Histogram: Span must be a positive multiple of Buckets (3) nanoseconds, got 1s"},
		{HistogramOptions{Highest: -1}, "stats: Histogram: Highest must be positive, got -1ns"},
	} {
		h, err := NewHistogram(&c.o)
		require.EqualError(t, err, c.err)
		require.Nil(t, h)
	}
	require.Equal(t, 10*time.Second, spanOf(newHistogram(t, nil)))
	require.Equal(t, 6*time.Second, spanOf(newHistogram(t, &HistogramOptions{Span: 6 * time.Second, Buckets: 3})))
}

func TestHistogramCellsCoverEveryDurationOnce(t *testing.T) {
	require.Zero(t, cellOf(0))
	require.Equal(t, maxCells-1, cellOf(math.MaxInt64))
	for d := range time.Duration(64) {
		require.Equal(t, d, middle(cellOf(d)), "small durations are exact")
	}
	for cell := range maxCells {
		require.Equal(t, cell, cellOf(middle(cell)))
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for range 100_000 {
		d := time.Duration(rng.Int64N(math.MaxInt64) >> rng.IntN(63))
		requireNear(t, d, middle(cellOf(d)))
		require.LessOrEqual(t, cellOf(d), cellOf(d+1), "cells are in order")
	}
}

// requireNear demands what the documentation promises: within 1.6 % of the true value.
func requireNear(t testing.TB, want, got time.Duration) {
	t.Helper()
	require.LessOrEqual(t, math.Abs(float64(got)-float64(want)), float64(want)*0.016, "want %v, got %v", want, got)
}

func TestHistogramQuantiles(t *testing.T) {
	h := newHistogram(t, nil)
	require.Zero(t, h.Quantile(epoch, 0.5))
	require.Equal(t, []time.Duration{0, 0}, h.Quantiles(epoch, 0.5, 0.99))
	require.Empty(t, h.Quantiles(epoch))
	for d := range time.Duration(60) {
		h.Record(epoch, d+1)
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 30, 0.9: 54, 0.99: 60, 1: 60, -1: 1, 2: 60, math.Inf(-1): 1, math.Inf(1): 60} {
		require.Equal(t, want, h.Quantile(epoch, q), "q = %v", q)
	}
	require.Equal(t, time.Duration(1), h.Quantile(epoch, math.NaN()))
	require.Equal(t, []time.Duration{54, 1, 30}, h.Quantiles(epoch, 0.9, 0, 0.5))
	require.Equal(t, int64(60), h.Count(epoch))
}

func TestHistogramRankIsNotRoundedUp(t *testing.T) {
	h := newHistogram(t, nil)
	for d := range time.Duration(7) {
		h.Record(epoch, d)
	}
	for range 93 {
		h.Record(epoch, time.Second)
	}
	require.Equal(t, time.Duration(6), h.Quantile(epoch, 0.07), "the seventh of a hundred, although 0.07 × 100 > 7 in floating point")
}

func TestHistogramRange(t *testing.T) {
	h := newHistogram(t, nil)
	h.Record(epoch, -5)
	require.Zero(t, h.Quantile(epoch, 1), "a negative duration counts as 0")
	h.Record(epoch, math.MaxInt64)
	require.Equal(t, time.Hour, h.Quantile(epoch, 1), "a longer one counts as Highest")
	require.Equal(t, int64(2), h.Count(epoch))

	h = newHistogram(t, &HistogramOptions{Highest: math.MaxInt64})
	h.Record(epoch, math.MaxInt64)
	requireNear(t, math.MaxInt64, h.Quantile(epoch, 1))
	h = newHistogram(t, &HistogramOptions{Highest: 1})
	h.Record(epoch, 5)
	require.Equal(t, time.Duration(1), h.Quantile(epoch, 1))
}

func TestHistogramRolls(t *testing.T) {
	h := newHistogram(t, &HistogramOptions{Span: 3 * time.Second, Buckets: 3})
	at := func(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }
	h.Record(at(0), 10)
	h.Record(at(1.5), 20)
	h.Record(at(2.9), 30)
	require.Equal(t, []time.Duration{10, 20, 30}, h.Quantiles(at(2.9), 0, 0.5, 1))
	require.Equal(t, []time.Duration{20, 30}, h.Quantiles(at(3), 0, 1), "the first bucket left")
	require.Equal(t, []time.Duration{30, 30}, h.Quantiles(at(4), 0, 1))
	require.Equal(t, int64(0), h.Count(at(5)))
	h.Record(at(1e6), 40)
	require.Equal(t, int64(1), h.Count(at(1e6)), "after an idle gap")
}

func TestHistogramLateSamples(t *testing.T) {
	h := newHistogram(t, &HistogramOptions{Span: 4 * time.Second, Buckets: 4})
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	h.Record(at(0), 1)
	h.Record(at(8), 20)
	h.Record(at(6), 10)  // late, and still in the window
	h.Record(at(4), 20)  // its cell counts the current bucket already
	h.Record(at(4), 5)   // its cell is free, and outside every window that is still asked for
	h.Record(at(-3), 30) // before the first instant
	require.Equal(t, []time.Duration{10, 20}, h.Quantiles(at(8), 0, 1))
	require.Equal(t, int64(2), h.Count(at(8)))
	require.Equal(t, int64(1), h.Count(at(-1)))
}

func TestHistogramCellStopsInsteadOfWrapping(t *testing.T) {
	h := newHistogram(t, &HistogramOptions{Span: 8 * time.Second})
	h.Record(epoch, 7)
	cell := &h.bucket(0)[7]
	cell.Store(countMask - 1)
	h.Record(epoch, 7)
	h.Record(epoch, 7)
	require.Equal(t, int64(countMask), h.Count(epoch))
	h.Record(epoch.Add(8*time.Second), 7)
	require.Equal(t, int64(1), h.Count(epoch.Add(8*time.Second)), "the next lap begins anew")
}

func TestHistogramAtTheEndsOfTime(t *testing.T) {
	h := newHistogram(t, &HistogramOptions{Span: time.Second, Buckets: 1})
	h.Record(epoch, 1)
	for _, now := range []time.Time{{}, epoch.Add(math.MaxInt64), epoch.Add(math.MinInt64), time.Unix(math.MaxInt64>>1, 0)} {
		h.Record(now, 2)
		h.Quantile(now, 0.5)
	}
}

func TestHistogramDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates; run without -race to check allocations")
	}
	h, now := newHistogram(t, nil), epoch
	require.Zero(t, testing.AllocsPerRun(100, func() {
		h.Record(now, 12345)
		now = now.Add(time.Second)
	}), "not even when a bucket begins, but for the first instant")
	require.Zero(t, testing.AllocsPerRun(100, func() { h.Quantile(now, 0.99) }))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { h.Quantiles(now, 0.5, 0.9, 0.99) }), 1.0)
}
