package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The flood gets its limit and the others what they ask for. All that is asserted are counts: a machine that is busy sends
// less, and that is all, unless there is no flood at all.
func TestOthersKeepTheirRate(t *testing.T) {
	s := settings{seconds: 2, limit: 25, others: 3}
	var results []result
	var took time.Duration
	for range 5 {
		var err error
		if results, took, err = s.play(); err != nil {
			t.Fatal(err)
		}
		if float64(results[0].offered) > 4*float64(s.limit)*took.Seconds() {
			break
		}
		t.Logf("the machine is too busy for a flood: %+v", results[0])
	}
	flood, rate := results[0], float64(s.limit)*took.Seconds()
	// A bucket lets through its rate, and no more than it holds beyond that.
	if most := rate + float64(s.limit) + 1; float64(flood.served) > most || float64(flood.served) < 0.7*rate {
		t.Errorf("the flood got %d answers, want at most %.0f and some %.0f", flood.served, most, rate)
	}
	if flood.refused < flood.served {
		t.Errorf("this was no flood: %+v", flood)
	}
	for i, r := range results[1:] {
		if r.offered < 1 || float64(r.served) < 0.95*float64(r.offered) {
			t.Errorf("%s was disturbed: %+v", tenantName(i+1), r)
		}
		if !strings.HasPrefix(r.said, `"tenant";r=`) {
			t.Errorf("%s was told %q", tenantName(i+1), r.said)
		}
	}
}

func TestRunWritesTheFigures(t *testing.T) {
	file, page := filepath.Join(t.TempDir(), "figures.json"), filepath.Join(t.TempDir(), "report.html")
	var out strings.Builder
	if err := run([]string{"-seconds", "0.2", "-limit", "20", "-others", "1", "-json", file, "-report", page}, &out); err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(html), "flood") || !strings.Contains(string(html), "calm 1") {
		t.Fatalf("%v: %s", err, html)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var told struct {
		Tenants []map[string]any `json:"tenants"`
	}
	if err := json.Unmarshal(text, &told); err != nil {
		t.Fatal(err)
	}
	if len(told.Tenants) != 2 || told.Tenants[0]["name"] != "flood" || told.Tenants[1]["name"] != "calm 1" {
		t.Fatalf("%s", text)
	}
	for _, tenant := range told.Tenants {
		if offered, ok := tenant["offered_rps"].(float64); !ok || offered <= 0 || tenant["limit_rps"] != 20.0 || len(tenant) != 4 {
			t.Errorf("%v", tenant)
		}
		if !strings.Contains(out.String(), "\n"+tenant["name"].(string)+" ") {
			t.Errorf("the table has no row for %v:\n%s", tenant["name"], out.String())
		}
	}
}

func TestRunRefusesWhatCannotBe(t *testing.T) {
	for _, args := range [][]string{{"-seconds", "0"}, {"-seconds", "NaN"}, {"-limit", "1"}, {"-others", "0"}} {
		if err := run(args, io.Discard); err == nil {
			t.Error(args)
		}
	}
}
