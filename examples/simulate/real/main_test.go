package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spillway-go/spillway/lab/overload"
	"github.com/spillway-go/spillway/sim"
)

func TestCompareShowsBothServers(t *testing.T) {
	measured := &overload.Run{Capacity: 180, CapacityAfter: 190, Results: []overload.Result{
		{Guard: "none", GoodputAll: 0.02}, {Guard: "spillway", GoodputAll: 0.97, ShedAll: 0.8, RefusedP99All: overload.Known(62.0)},
	}}
	if got := beside(measured); got < 161*time.Microsecond || got > 163*time.Microsecond {
		t.Errorf("0.4 CPUs for 185 requests a second are 2.162 ms for each, got %v beside 2 ms", got)
	}
	var out strings.Builder
	if err := compare(&out, measured, withBeside(sim.Named("server-step", 2), beside(measured)), 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"server-step: 180 requests a second", "none      real           0.02", "none      simulated",
		"spillway  real           0.97       0.00     0.80      NaN         62", "spillway  simulated      0.9",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
}

func TestWhatIsNoShape(t *testing.T) {
	err := run(context.Background(), &overload.Config{}, []string{"-shape", "square"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `unknown shape "square"`) {
		t.Errorf("got %v", err)
	}
}
