package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets this program be the server, too.
func TestMain(m *testing.M) {
	if serves() {
		if err := serve(); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Critical requests are served, and clients that listen send less. The bands leave room for a machine that is busy. Where it has no
// time for server and clients at all, another attempt does.
func TestFigures(t *testing.T) {
	for attempt := 1; ; attempt++ {
		outside := measured(t)
		if len(outside) == 0 {
			return
		}
		t.Logf("attempt %d: %s", attempt, strings.Join(outside, "; "))
		if attempt == 4 {
			t.Fatal("no attempt was within the bands")
		}
	}
}

// measured makes the figures, and returns those that are outside of their bands.
func measured(t *testing.T) (outside []string) {
	t.Helper()
	folder := t.TempDir()
	file, html, svg := filepath.Join(folder, "figures.json"), filepath.Join(folder, "page.html"), filepath.Join(folder, "picture.svg")
	var out strings.Builder
	if err := run([]string{"-seconds", "1.5", "-load", "6", "-json", file, "-report", html, "-svg", svg}, &out); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + out.String())
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var f figures
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Classes) != 3 || f.Classes[0].Priority != "critical" || f.Classes[1].Priority != "normal" || f.Classes[2].Priority != "sheddable" {
		t.Fatalf("%s", text)
	}
	if critical, sheddable := f.Classes[0].Served, f.Classes[2].Served; critical < 0.7 || critical < 3*sheddable {
		outside = append(outside, fmt.Sprintf("%.3f of the critical requests were served, and %.3f of the sheddable ones", critical, sheddable))
	}
	if f.Goodput <= 0.2 || f.GoodputOff <= 0.2 || f.Helped.Goodput <= 0.2 {
		outside = append(outside, fmt.Sprintf("useful answers: %v, %v, %v", f.GoodputOff, f.Goodput, f.Helped.Goodput))
	}
	if f.HelpedRPS <= 0 || f.HelpedRPS > f.PlainRPS/2 {
		outside = append(outside, fmt.Sprintf("%v requests per second reach the server from clients that listen, and %v from others", f.HelpedRPS, f.PlainRPS))
	}
	for name, want := range map[string]string{html: "clients listen", svg: "</svg>"} {
		if text, err := os.ReadFile(name); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v: %s", err, text)
		}
	}
	for _, c := range f.Classes {
		if !strings.Contains(out.String(), "\n"+c.Priority+" ") {
			t.Errorf("the table has no row for %s", c.Priority)
		}
	}
	return outside
}

func TestRunRefusesWhatCannotBe(t *testing.T) {
	for _, args := range [][]string{{"-seconds", "0"}, {"-seconds", "NaN"}, {"-load", "1"}, {"-load", "51"}} {
		if err := run(args, io.Discard); err == nil {
			t.Error(args)
		}
	}
}
