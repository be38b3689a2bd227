package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/sim"
)

// A traced request is one row of a recorded trace.
type traced struct {
	arrival   float64 // in seconds
	class     string
	cpu, wait time.Duration
}

var traceHeader = []string{"arrival_s", "class", "cpu_ms", "wait_ms"}

const (
	traceMostSeconds = 24 * 60 * 60
	traceMostRows    = 1000 // that requests are drawn from
	traceParse       = 25 * time.Microsecond
)

// readTrace reads a trace: CSV with the columns of traceHeader, in any order of arrival.
func readTrace(r io.Reader) ([]traced, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = len(traceHeader)
	header, err := lines.Read()
	if err != nil || !slices.Equal(header, traceHeader) {
		return nil, fmt.Errorf("the first line must be %q, got %q", traceHeader, header)
	}
	var rows []traced
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		row := traced{class: fields[1]}
		var numbers [3]float64
		for i, column := range []int{0, 2, 3} {
			v, err := strconv.ParseFloat(fields[column], 64)
			if err != nil || !(v >= 0 && v <= 1e10) {
				at, _ := lines.FieldPos(column)
				return nil, fmt.Errorf("line %d: %s must be a number from 0 to 1e10, got %q", at, traceHeader[column], fields[column])
			}
			numbers[i] = v
		}
		row.arrival, row.cpu, row.wait = numbers[0], millis(numbers[1]), millis(numbers[2])
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, errors.New("the trace has no requests")
	}
	slices.SortStableFunc(rows, func(a, b traced) int { return cmp.Compare(a.arrival, b.arrival) })
	if span := rows[len(rows)-1].arrival - rows[0].arrival; span >= traceMostSeconds {
		return nil, fmt.Errorf("the trace must be shorter than a day, got %.0f s", span)
	}
	return rows, nil
}

func millis(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }

// replay makes a scenario of a trace. It keeps the rate second by second, times scale, and draws what a request needs from
// the recorded ones; the very moments, and which request came when, it does not keep. It returns the greatest load too.
func replay(rows []traced, scale float64, cores int, useful time.Duration) (s sim.Scenario, peak float64) {
	s = sim.Scenario{
		Name:    "trace",
		Machine: sim.Machine{Cores: cores, Parse: traceParse},
		Client:  sim.Client{Useful: useful, Deadline: 4 * useful},
	}
	var cpu time.Duration
	step := (len(rows) + traceMostRows - 1) / traceMostRows
	for i := 0; i < len(rows); i += step {
		r := rows[i]
		cpu += r.cpu
		s.Classes = append(s.Classes, sim.Class{
			Name: fmt.Sprintf("%s/%d", r.class, i), Key: r.class, Share: 1,
			Stages: []sim.Stage{{CPU: sim.Dist{Fixed: r.cpu}, Wait: sim.Dist{Fixed: r.wait}}},
		})
	}
	s.Capacity = float64(cores) / (cpu.Seconds()/float64(len(s.Classes)) + traceParse.Seconds())

	counts := make([]int, int(rows[len(rows)-1].arrival-rows[0].arrival)+1)
	for _, r := range rows {
		counts[int(r.arrival-rows[0].arrival)]++
	}
	for _, n := range counts {
		load := float64(n) * scale / s.Capacity
		peak = math.Max(peak, load)
		s.Phases = append(s.Phases, sim.Phase{For: time.Second, Load: load, Measured: true})
	}
	return s, peak
}

// replayed is the scenario that the flags ask for with -trace, and its greatest load.
func replayed(s settings) (sim.Scenario, float64, error) {
	switch {
	case !(s.scale > 0 && s.scale <= 100):
		return sim.Scenario{}, 0, fmt.Errorf("scale must be above 0 and at most 100, got %v", s.scale)
	case s.cores < 1 || s.cores > 1024:
		return sim.Scenario{}, 0, fmt.Errorf("cores must be in 1..1024, got %d", s.cores)
	case s.useful < time.Millisecond || s.useful > time.Hour:
		return sim.Scenario{}, 0, fmt.Errorf("useful must be from 1ms to 1h, got %v", s.useful)
	}
	file, err := os.Open(s.trace)
	if err != nil {
		return sim.Scenario{}, 0, err
	}
	defer file.Close()
	rows, err := readTrace(file)
	if err != nil {
		return sim.Scenario{}, 0, fmt.Errorf("%s: %w", s.trace, err)
	}
	scenario, peak := replay(rows, s.scale, s.cores, s.useful)
	return scenario, peak, nil
}
