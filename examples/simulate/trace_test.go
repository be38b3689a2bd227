package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRunReplaysATrace(t *testing.T) {
	var text strings.Builder
	text.WriteString("arrival_s,class,cpu_ms,wait_ms\n")
	for i := range 150 {
		fmt.Fprintf(&text, "%v,web,8,5\n", float64(i)/50)
	}
	file := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run([]string{"-trace", file, "-cores", "1", "-policies", "fixed:8,none"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if want := "trace at 0.401"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("want %q, got %s", want, out.String())
	}
	out.Reset()
	if err := run([]string{"-trace", file, "-scale", "4", "-cores", "1", "-policies", "fixed:8"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "trace at 1.") {
		t.Errorf("four times the rate is too much, got %s", out.String())
	}
	for want, flag := range map[string]string{
		"scale": "-scale=0", "cores": "-cores=0", "useful": "-useful=0s", "no such file": "-trace=" + file + "x",
		"nothing is left": "-scale=1e-9",
	} {
		if err := run([]string{"-trace", file, flag}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}

func TestTraceSaysHowLongClientsWait(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(file, []byte("arrival_s,class,cpu_ms,wait_ms\n5,web,8,5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _, err := replayed(settings{trace: file, scale: 1, cores: 4, useful: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if s.Client.Useful != 500*time.Millisecond || s.Client.Deadline != 2*time.Second || s.Machine.Cores != 4 || len(s.Trace) != 1 {
		t.Errorf("%+v", s)
	}
}
