package orca

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/stats"
)

func TestReports(t *testing.T) {
	admitted, refused, failed, reads := 0.0, 0.0, 0.0, 0
	label := func(name, value string) []stats.Label { return []stats.Label{{Name: name, Value: value}} }
	source := func() iter.Seq[stats.Metric] {
		return func(yield func(stats.Metric) bool) {
			reads++
			for _, m := range []stats.Metric{
				{Name: "spillway.gate.requests", Labels: label("result", "admitted"), Value: admitted},
				{Name: "spillway.gate.requests", Labels: label("result", "refused"), Value: refused},
				{Name: "spillway.gate.requests", Labels: label("result", "cancelled"), Value: 1e9},
				{Name: "spillway.gate.outcomes", Labels: label("outcome", "failure"), Value: failed},
				{Name: "spillway.gate.outcomes", Labels: label("outcome", "success"), Value: admitted},
				{Name: "spillway.demand", Value: 1.75},
				{Name: "spillway.demand", Labels: label("shadow", "0"), Value: 9},
				{Name: "spillway.shedder.cpu", Value: 0.5},
				{Name: "spillway.adaptive.limit", Value: 10},
				{Name: "spillway.adaptive.in_flight", Value: 5},
			} {
				if !yield(m) {
					return
				}
			}
		}
	}
	r, err := New(Always, source)
	require.NoError(t, err)
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	first := r.Report(now)
	require.Same(t, first, r.Report(now.Add(99*time.Millisecond)), "once per 100 ms")
	require.Equal(t, 1, reads)
	for range 200 {
		now = now.Add(100 * time.Millisecond)
		admitted, refused, failed = admitted+60, refused+30, failed+10
		r.Report(now)
	}
	last := r.Report(now)
	require.Equal(t, []string{"TEXT application_utilization=1.75, cpu_utilization=0.5, rps_fractional=900, eps=400"}, last.Text)
	require.Equal(t, []string{`JSON {"application_utilization":1.75,"cpu_utilization":0.5,"rps_fractional":900,"eps":400}`}, last.JSON)
	require.Len(t, last.Binary, 4*9)
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Report(now) }))

	none, err := New(Off, source)
	require.NoError(t, err)
	require.Nil(t, none)
	_, err = New(3, source)
	require.EqualError(t, err, "LoadReport: must be one of the constants, got 3")
}

// A server of few requests says that it is idle, though each request that carries a report is in flight.
func TestUtilizationIsThatOfTheOthers(t *testing.T) {
	inFlight := 1.0
	r, err := New(Always, func() iter.Seq[stats.Metric] {
		return func(yield func(stats.Metric) bool) {
			_ = yield(stats.Metric{Name: "spillway.adaptive.limit", Value: 8}) &&
				yield(stats.Metric{Name: "spillway.adaptive.in_flight", Value: inFlight})
		}
	})
	require.NoError(t, err)
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	require.Contains(t, r.Report(now).Text[0], "application_utilization=0,")
	for i := range 100 { // now one, now seven others: half of the limit on average
		inFlight = 2 + 6*float64(i%2)
		r.Report(now.Add(time.Duration(i+1) * 100 * time.Millisecond))
	}
	var used float64
	_, err = fmt.Sscanf(r.Report(now.Add(10 * time.Second)).Text[0], "TEXT application_utilization=%f", &used)
	require.NoError(t, err)
	require.InDelta(t, 0.5, used, 0.05)
}
