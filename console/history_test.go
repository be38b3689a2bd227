package console

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/stats"
)

var t0 = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// script feeds a history, a second at a time.
type script struct {
	h   *history
	now time.Time
	was map[string]float64 // counters
}

func newScript() *script { return &script{newHistory("boot", t0), t0, map[string]float64{}} }

// second adds a sample with the readings given, after a second.
func (s *script) second(readings ...reading) {
	s.h.add(s.now, readings)
	s.now = s.now.Add(every)
}

func metric(kind stats.Kind, name, unit string, value float64, labels ...string) reading {
	m := stats.Metric{Name: "spillway." + name, Unit: unit, Kind: kind, Value: value}
	for i := 0; i < len(labels); i += 2 {
		m.Labels = append(m.Labels, stats.Label{Name: labels[i], Value: labels[i+1]})
	}
	return reading{"api", m}
}

func gauge(name string, value float64, labels ...string) reading {
	return metric(stats.KindGauge, name, "1", value, labels...)
}

// grow is a counter that grows by n.
func (s *script) grow(name string, n float64, labels ...string) reading {
	key := fmt.Sprint(name, labels)
	s.was[key] += n
	return metric(stats.KindCounter, name, "{request}", s.was[key], labels...)
}

func values(h *history, name string) (out []float64) {
	for _, s := range h.order {
		if s.metric.Name != "spillway."+name {
			continue
		}
		for seq := h.oldest(); seq <= h.seq; seq++ {
			out = append(out, s.at(seq))
		}
	}
	return out
}

func TestHistoryKeepsGaugesAndTheGrowthOfCounters(t *testing.T) {
	s := newScript()
	s.was["requests[]"] = 1000
	s.second(gauge("cpu", 0.5), s.grow("requests", 0))
	s.second(gauge("cpu", 0.75), s.grow("requests", 10))
	s.second(s.grow("requests", 20), s.grow("late", 7))
	s.now = s.now.Add(every) // a sample that is a second late
	s.second(s.grow("requests", 20), s.grow("late", 0))
	require.Equal(t, []float64{0.5, 0.75}, values(s.h, "cpu")[:2])
	require.True(t, math.IsNaN(values(s.h, "cpu")[2]))
	grown := values(s.h, "requests")
	require.True(t, math.IsNaN(grown[0]), "what was before the first sample is unknown")
	require.Equal(t, []float64{10, 20, 10}, grown[1:])
	require.Equal(t, []float64{7, 0}, values(s.h, "late")[2:], "a counter that appears began at 0")
	require.Equal(t, []int64{0, 1000, 2000, 4000}, []int64{
		s.h.time(1) - t0.UnixMilli(), s.h.time(2) - t0.UnixMilli(), s.h.time(3) - t0.UnixMilli(), s.h.time(4) - t0.UnixMilli(),
	})
}

func TestHistoryOfACounterThatBeginsAgain(t *testing.T) {
	s := newScript()
	s.second(metric(stats.KindCounter, "requests", "", 100))
	s.second(metric(stats.KindCounter, "requests", "", 3))
	require.InDelta(t, 3, values(s.h, "requests")[1], 0)
}

func TestHistoryKeepsTheMeanOfNewValuesOfAHistogram(t *testing.T) {
	s := newScript()
	for _, d := range []stats.Distribution{{Count: 10, Sum: 10}, {Count: 12, Sum: 16}, {Count: 12, Sum: 16}} {
		m := metric(stats.KindHistogram, "wait", "s", d.Sum/float64(d.Count))
		m.metric.Distribution = &d
		s.second(m)
	}
	got := values(s.h, "wait")
	require.InDelta(t, 3, got[1], 0)
	require.True(t, math.IsNaN(got[2]), "none was added")
	require.Nil(t, s.h.order[0].metric.Distribution, "it does not keep the object alive")
}

func TestHistoryLeavesOutMomentsAndWhatIsTooMuch(t *testing.T) {
	s := newScript()
	s.second(metric(stats.KindGauge, "since", "s", float64(t0.Unix())))
	require.Empty(t, s.h.order)
	var many []reading
	for i := range maxSeries + 5 {
		many = append(many, gauge("g", 1, "n", fmt.Sprint(i)))
	}
	s.second(many...)
	require.Len(t, s.h.order, maxSeries)
	require.Contains(t, s.h.notes(nil), "5 figures beyond the first 2000 are not shown.")
	for range keep + 1 {
		s.second(gauge("other", 1))
	}
	require.Len(t, s.h.order, 1, "series without values are forgotten, and make room")
	require.Empty(t, s.h.notes(nil))
}

// A day of samples with reasons that come and go, a source that refuses on and off, and a reader, in bounded memory.
func TestHistoryDoesNotGrowInADay(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("a day of samples, in one goroutine")
	}
	s := newScript()
	begin := time.Now()
	var early uint64
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	most, largest := 0, 0
	for i := range 24 * 3600 {
		refused := 0.0
		if i%60 < 20 {
			refused = 5
		}
		s.second(
			s.grow("gate.requests", 100, "result", "admitted"), s.grow("gate.requests", refused, "result", "refused"),
			s.grow("gate.refusals", refused, "policy", "p", "reason", "r"), gauge("gate.in_flight", float64(i%7)),
			gauge("gone", 1, "n", fmt.Sprint(i/300)), metric(stats.KindGauge, "shedder.state", "", 1, "state", fmt.Sprint(i/4)),
		)
		most = max(most, len(s.h.order))
		if i%997 == 0 {
			answer := s.h.snapshot(0, s.now, nil)
			largest = max(largest, len(answer.Series))
		}
		if i == 2*3600 {
			s.was = map[string]float64{"gate.requests[result admitted]": s.was["gate.requests[result admitted]"]}
			early = used()
		}
	}
	late := used()
	t.Logf("a day in %v; at most %d series; the whole snapshot is at most %d bytes; heap %d KB after two hours, %d KB after a day",
		time.Since(begin).Round(time.Millisecond), most, largest, early>>10, late>>10)
	require.Less(t, most, keep+10)
	require.Len(t, s.h.journal, maxChanges)
	require.Less(t, late, early+256<<10)
	require.Len(t, s.h.snapshot(0, s.now, nil).Times, keep)
}
