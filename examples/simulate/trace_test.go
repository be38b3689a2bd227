package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const traceHead = "arrival_s,class,cpu_ms,wait_ms\n"

const ms = time.Millisecond

func near(t *testing.T, name string, want, got float64) {
	t.Helper()
	if math.Abs(want-got) > 1e-9 {
		t.Errorf("%s: want %v, got %v", name, want, got)
	}
}

func TestReplayKeepsRatesAndNeeds(t *testing.T) {
	rows, err := readTrace(strings.NewReader(traceHead + "102.5,b,20,0\n100.25,a,10,50\n100.75,a,30,0.5\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, peak := replay(rows, 2, 4, 500*time.Millisecond)
	if want := 4 / 0.020025; math.Abs(s.Capacity-want) > 1e-9 {
		t.Errorf("capacity: want %v, got %v", want, s.Capacity)
	}
	near(t, "peak", 4/s.Capacity, peak)
	if len(s.Phases) != 3 {
		t.Fatalf("want a phase for each second, got %v", s.Phases)
	}
	for i, perSecond := range []float64{4, 0, 2} {
		near(t, fmt.Sprintf("second %d", i), perSecond, s.Phases[i].Load*s.Capacity)
	}
	first := s.Classes[0]
	if first.Key != "a" || first.Stages[0].CPU.Fixed != 10*ms || first.Stages[0].Wait.Fixed != 50*ms {
		t.Errorf("the first to arrive: %+v", first)
	}
	if s.Client.Useful != 500*ms || s.Client.Deadline != 2*time.Second || s.Machine.Cores != 4 {
		t.Errorf("%+v %+v", s.Client, s.Machine)
	}
}

func TestReplayDrawsFromRowsOfTheWholeTrace(t *testing.T) {
	rows := make([]traced, 2500)
	for i := range rows {
		rows[i] = traced{arrival: float64(i) / 100, cpu: ms}
	}
	s, _ := replay(rows, 1, 1, time.Second)
	if n := len(s.Classes); n > traceMostRows || n < traceMostRows/2 || len(s.Phases) != 25 {
		t.Errorf("%d rows, %d phases", n, len(s.Phases))
	}
}

func TestTraceThatIsNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "the first line must be",
		"a,b\n":                              "the first line must be",
		traceHead:                            "no requests",
		traceHead + "1,a,2\n":                "wrong number of fields",
		traceHead + "1,a,-2,0\n":             `line 2: cpu_ms must be a number from 0 to 1e10, got "-2"`,
		traceHead + "NaN,a,2,0\n":            `line 2: arrival_s must be a number from 0 to 1e10, got "NaN"`,
		traceHead + "0,a,2,0\n86400,a,2,0\n": "shorter than a day",
	} {
		if _, err := readTrace(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want an error with %q, got %v", text, want, err)
		}
	}
}

func TestRunReplaysATrace(t *testing.T) {
	var text strings.Builder
	text.WriteString(traceHead)
	for i := range 150 {
		fmt.Fprintf(&text, "%v,web,8,5\n", float64(i)/50)
	}
	file := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run([]string{"-trace", file, "-scale", "4", "-cores", "1", "-policies", "fixed:8"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if want := "trace at 1.605 times the capacity, 3s of"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("want %q, got %s", want, out.String())
	}
	for want, flag := range map[string]string{"scale": "-scale=0", "cores": "-cores=0", "useful": "-useful=0s", "no such file": "-trace=" + file + "x"} {
		if err := run([]string{"-trace", file, flag}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}
