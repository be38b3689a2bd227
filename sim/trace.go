package sim

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// An Arrival is one request of a recorded trace.
type Arrival struct {
	At        time.Duration // since the beginning
	Class     string
	CPU, Wait time.Duration // needs of its first stage, instead of those of the class
}

const (
	maxTrace   = 24 * time.Hour
	maxArrival = 200 * 365 * 24 * time.Hour // since 1970, so that seconds of that clock will do
)

// Replay returns a [Scenario] that sends the requests of trace to m at their recorded times with their recorded needs.
// Trace must be sorted by time, as [ReadTrace] and [Scale] return it. There is one class for each name in it, which
// needs CPU and then waits. Change the Classes of the Scenario if you know more about them. The whole trace is
// measured, second by second: the load of a phase is the CPU that its requests need. [Run] returns an error if the
// trace is empty, longer than a day or not in order.
func Replay(trace []Arrival, m Machine) Scenario {
	s := Scenario{Name: "trace", Machine: m, Trace: trace}
	type sum struct{ n, cpu, wait float64 }
	sums := map[string]sum{}
	var names []string
	for _, a := range trace {
		c := sums[a.Class]
		if c.n == 0 {
			names = append(names, a.Class)
		}
		sums[a.Class] = sum{c.n + 1, c.cpu + float64(a.CPU), c.wait + float64(a.Wait)}
	}
	for _, name := range names {
		c := sums[name]
		s.Classes = append(s.Classes, Class{
			Name: name, Key: name, Share: c.n,
			Stages: []Stage{{CPU: Dist{Fixed: time.Duration(c.cpu / c.n)}, Wait: Dist{Fixed: time.Duration(c.wait / c.n)}}},
		})
	}
	m.setDefaults()
	most := m.cpus() * float64(m.Hosts)
	for _, a := range trace {
		second := int(a.At / time.Second)
		if a.At < 0 || a.At >= maxTrace {
			continue // which Run will not take
		}
		for len(s.Phases) <= second {
			s.Phases = append(s.Phases, Phase{For: time.Second, Measured: true})
		}
		s.Phases[second].Load += (a.CPU + m.Parse).Seconds() / most
	}
	return s
}

// Scale multiplies the number of requests in trace by times. Each request is kept, dropped or repeated, at random from
// seed. A copy comes up to half a second earlier or later than its original, so that copies do not arrive in step.
// Times 1 returns the trace itself; times outside 0..1000 panic.
func Scale(trace []Arrival, times float64, seed uint64) []Arrival {
	if !(times >= 0 && times <= 1000) {
		panic(fmt.Sprintf("sim: Scale: times must be in 0..1000, got %v", times))
	}
	if times == 1 || len(trace) == 0 {
		return trace
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	scaled := make([]Arrival, 0, int(times*float64(len(trace)))+1)
	whole, part := math.Modf(times)
	last := trace[len(trace)-1].At
	for _, a := range trace {
		n := int(whole)
		if rng.Float64() < part {
			n++
		}
		for i := range n {
			b := a
			if i > 0 {
				b.At = min(last, max(0, a.At+time.Duration((rng.Float64()-0.5)*float64(time.Second))))
			}
			scaled = append(scaled, b)
		}
	}
	slices.SortStableFunc(scaled, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	return scaled
}

var traceHeader = []string{"arrival_s", "class", "cpu_ms", "wait_ms"}

// ReadTrace reads a trace: CSV with a line that names the columns arrival_s, class, cpu_ms and wait_ms, and then one
// line for each request, in any order. The first request is at time 0, whatever its recorded time. A trace is shorter
// than a day. The error names the invalid line.
func ReadTrace(r io.Reader) ([]Arrival, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = len(traceHeader)
	lines.ReuseRecord = true
	header, err := lines.Read()
	if err != nil || !slices.Equal(header, traceHeader) {
		return nil, fmt.Errorf("sim: trace: the first line must be %q, got %q", traceHeader, header)
	}
	var trace []Arrival
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("sim: trace: %w", err)
		}
		a, err := parseArrival(lines, fields)
		if err != nil {
			return nil, err
		}
		trace = append(trace, a)
	}
	return inOrder(trace)
}

func parseArrival(lines *csv.Reader, fields []string) (Arrival, error) {
	a := Arrival{Class: fields[1]}
	for _, f := range []struct {
		column int
		unit   time.Duration
		most   time.Duration
		to     *time.Duration
	}{
		{0, time.Second, maxArrival, &a.At}, {2, time.Millisecond, maxTrace, &a.CPU}, {3, time.Millisecond, maxTrace, &a.Wait},
	} {
		v, err := strconv.ParseFloat(fields[f.column], 64)
		if err != nil || !(v >= 0 && v*float64(f.unit) <= float64(f.most)) {
			at, _ := lines.FieldPos(f.column)
			return a, fmt.Errorf("sim: trace: line %d: %s must be a number from 0 to %v, got %q",
				at, traceHeader[f.column], int64(f.most/f.unit), fields[f.column])
		}
		*f.to = time.Duration(math.Round(v * float64(f.unit)))
	}
	return a, nil
}

// inOrder sorts a trace and lets it begin at 0.
func inOrder(trace []Arrival) ([]Arrival, error) {
	if len(trace) == 0 {
		return nil, errors.New("sim: trace: it has no requests")
	}
	slices.SortStableFunc(trace, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	first := trace[0].At
	for i := range trace {
		trace[i].At -= first
	}
	if span := trace[len(trace)-1].At; span >= maxTrace {
		return nil, fmt.Errorf("sim: trace: it must be shorter than a day, got %v", span)
	}
	return trace, nil
}

// replay plans the arrivals of the trace, one time after the other.
func (s *simulation) replay() {
	trace := s.s.Trace
	if len(trace) == 0 {
		return
	}
	classes := map[string]*Class{}
	for i := range s.s.Classes {
		classes[s.s.Classes[i].Name] = &s.s.Classes[i]
	}
	phase, next := 0, 0
	end := s.s.Phases[0].For
	var arrive func()
	arrive = func() {
		for ; s.now >= end; end += s.s.Phases[phase].For {
			phase++
		}
		for ; next < len(trace) && trace[next].At == s.now; next++ {
			class := classes[trace[next].Class]
			s.send(&call{class: class, key: s.key(class), first: s.now, phase: phase, trace: &trace[next]})
		}
		if next < len(trace) {
			s.at(trace[next].At, arrive)
		}
	}
	s.at(trace[0].At, arrive)
}
