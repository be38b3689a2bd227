package overload

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// example is a run of two guards through a light and a heavy load.
func example() *Run {
	run := &Run{Capacity: 100, Work: "cpu", WorkAbout: "work", Notes: []string{"a note"}}
	run.SLOMillis, run.DeadlineMs = 500, 1000
	for _, guard := range []string{"none", "mine"} {
		heavy := steady(5, 2*time.Second, 4*time.Second, timeout, defaultDeadline)
		if guard == "mine" {
			heavy = steady(5, 2*time.Second, 4*time.Second, answered, 30*ms)
		}
		g := &guardRun{runner: &runner{capacity: 100}, guard: guard, now: 4 * time.Second, stretches: []*stretch{
			steady(0.5, 0, 2*time.Second, answered, 5*ms), heavy,
		}}
		for at := 0.05; at < 4; at += 0.1 {
			s := ServerSample{T: at, Running: 3}
			if guard == "mine" {
				s.View = View{CPURaw: Known(0.9), CPUSmoothed: Known(0.8), InFlight: Known(3.0)}
			}
			g.ended = append(g.ended, s)
		}
		results, series := g.reduce()
		run.Results = append(run.Results, results...)
		run.Series = append(run.Series, series)
	}
	return run
}

func TestPageShowsTheRun(t *testing.T) {
	run := example()
	p := run.Page()
	require.Contains(t, p.Lead, "5 times")
	require.Contains(t, p.Lead, "bare 0 %, mine 100 %")
	require.Len(t, p.Sections, 4, "goodput, over time, what mine saw, all figures")
	require.Len(t, p.Sections[0].Bars, 2)

	charts := p.Sections[1].Charts
	require.Len(t, charts[0].X, 8, "4 s in halves")
	require.Len(t, charts[0].Bands, 2)
	require.Equal(t, "5×", charts[0].Bands[1].Name)
	bare, mine := charts[0].Lines[0], charts[0].Lines[1]
	require.Equal(t, []float64{100, 100, 100, 100, 0, 0, 0, 0}, bare.Y)
	require.Equal(t, []float64{100, 100, 100, 100, 100, 100, 100, 100}, mine.Y)
	require.InDelta(t, 1000, charts[1].Lines[0].Y[7], 0, "who got no answer waited for the deadline")

	cpu := p.Sections[2].Charts[0]
	require.InDelta(t, 90, cpu.Lines[0].Y[0], 1e-9)
	require.InDelta(t, 80, cpu.Lines[1].Y[0], 1e-9)

	var out bytes.Buffer
	require.NoError(t, p.Write(&out))
}

func TestTableShowsTheRun(t *testing.T) {
	var out bytes.Buffer
	writeTable(&out, example())
	require.Contains(t, out.String(), "mine")
	require.Contains(t, out.String(), "100.0%")
}
