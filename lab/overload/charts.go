package overload

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spillway-go/spillway/internal/report"
)

// cell is one grain of one load of one guard.
type cell struct {
	x        float64 // middle of it on the common axis, seconds
	from, to time.Duration
	samples  []sample
}

// cells cuts the measured loads of a series into grains and lays them one behind the other.
func (s *Series) cells() []cell {
	var out []cell
	var x time.Duration
	for _, l := range s.stretches {
		if l.Settle {
			continue
		}
		for from := l.from; from+grain <= l.to; from += grain {
			out = append(out, cell{(x + from - l.from + grain/2).Seconds(), from, from + grain, l.samples})
		}
		x += l.to - l.from
	}
	return out
}

// axis is the common X of all charts, with the loads as bands.
func (run *Run) axis() (x []float64, bands []report.Band) {
	if len(run.Series) == 0 {
		return nil, nil
	}
	for _, c := range run.Series[0].cells() {
		x = append(x, c.x)
	}
	at := 0.0
	for _, l := range run.Series[0].Spans {
		if !l.Settle {
			bands = append(bands, report.Band{From: at, To: at + l.End - l.Start, Name: fmt.Sprintf("%g×", l.Load)})
			at += l.End - l.Start
		}
	}
	return x, bands
}

// comparison shows all guards over the same time.
func (run *Run) comparison() []report.Chart {
	goodput := run.chart("Goodput", "% of capacity", "", func(f figures, c cell) float64 {
		return 100 * float64(f.good) / grain.Seconds() / run.Capacity
	})
	goodput.Height, goodput.Max = 260, 150
	goodput.Marks = []report.Mark{{Y: 100, Name: "capacity"}}
	deadline := time.Duration(run.DeadlineMs * float64(time.Millisecond))
	latency := run.chart("Latency", "ms, p99", "Of the requests that were not refused. One that got no answer counts as the deadline.", func(f figures, c cell) float64 {
		return known(quantile(append(f.latencies, slices.Repeat([]time.Duration{deadline}, f.timeouts)...), 0.99))
	})
	latency.Log, latency.Min, latency.Max, latency.Height = true, 1, 2*run.DeadlineMs, 260
	latency.Marks = []report.Mark{{Y: run.SLOMillis, Name: "worthless above"}}
	refused := run.chart("Refused", "% of the requests", "", func(f figures, c cell) float64 { return 100 * f.share(f.refused) })
	refused.Max = 105
	inside := run.chart("At work in the server", "requests", "Begun and not ended, whether or not anybody still waits for them. Gaps: the server was too jammed to say.", nil)
	inside.Log, inside.Min = true, 1
	for i := range run.Series {
		inside.Lines = append(inside.Lines, run.line(&run.Series[i], title(run.Series[i].Guard), func(s *ServerSample) float64 {
			return max(float64(s.Running), 1) // so that an idle server stays in a logarithmic picture
		}))
	}
	return []report.Chart{goodput, latency, refused, inside}
}

// chart makes a chart with a line for each guard, or none if value is nil.
func (run *Run) chart(name, unit, about string, value func(figures, cell) float64) report.Chart {
	c := report.Chart{Title: name, Unit: unit, About: about}
	c.X, c.Bands = run.axis()
	if value == nil {
		return c
	}
	for i := range run.Series {
		s := &run.Series[i]
		l := report.Line{Name: title(s.Guard), Role: run.role(s.Guard)}
		for _, cell := range s.cells() {
			l.Y = append(l.Y, value(between(cell.samples, cell.from, cell.to), cell))
		}
		c.Lines = append(c.Lines, l)
	}
	return c
}

// line returns one figure of the server's own view over time: the last one of each grain.
func (run *Run) line(s *Series, name string, value func(*ServerSample) float64) report.Line {
	l := report.Line{Name: name, Role: run.role(s.Guard)}
	for _, c := range s.cells() {
		y := math.NaN()
		for i := range s.Server {
			if t := s.Server[i].T; t >= c.from.Seconds() && t < c.to.Seconds() {
				y = value(&s.Server[i])
			}
		}
		l.Y = append(l.Y, y)
	}
	return l
}

// own shows the guard's own figures, if it has any.
func (run *Run) own(s *Series) (report.Section, bool) {
	has := func(value func(*View) *float64) bool {
		return slices.ContainsFunc(s.Server, func(v ServerSample) bool { return value(&v.View) != nil })
	}
	raw := func(v *View) *float64 { return v.CPURaw }
	smoothed := func(v *View) *float64 { return v.CPUSmoothed }
	limit := func(v *View) *float64 { return v.Limit }
	inFlight := func(v *View) *float64 { return v.InFlight }
	section := report.Section{Title: "What " + title(s.Guard) + " saw", Text: "The guard's own readings, from inside the server."}
	if has(raw) || has(smoothed) {
		c := run.chart("CPU", "% of what the process may use", "", nil)
		c.Max = 115
		c.Lines = []report.Line{run.viewLine(s, "raw", 100, raw), run.viewLine(s, "smoothed", 100, smoothed)}
		c.Lines[0].Dashed = true
		section.Charts = append(section.Charts, c)
	}
	if has(limit) || has(inFlight) {
		c := run.chart("Limit and in flight", "requests", "No limit is drawn while none is in force.", nil)
		c.Lines = []report.Line{run.viewLine(s, "limit", 1, limit), run.viewLine(s, "in flight", 1, inFlight)}
		c.Lines[0].Dashed, c.Lines[1].Fill = true, true
		section.Charts = append(section.Charts, c)
	}
	return section, len(section.Charts) > 0
}

func (run *Run) viewLine(s *Series, name string, scale float64, value func(*View) *float64) report.Line {
	return run.line(s, name, func(v *ServerSample) float64 { return scale * known(value(&v.View)) })
}
