package overload

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWorkDefaults(t *testing.T) {
	w, err := (&Config{}).work("cpu")
	require.NoError(t, err)
	require.Equal(t, 8, w.Workers)
	require.Zero(t, w.Capacity, "it is measured")
	require.Equal(t, 500*time.Millisecond, w.SLO)
	require.Equal(t, time.Second, w.Deadline)
	for _, name := range []string{"slow", "slow2"} {
		w, err = (&Config{}).work(name)
		require.NoError(t, err)
		require.InDelta(t, 300, w.Capacity, 0)
		require.Equal(t, 20*time.Second, w.SLO)
		require.Equal(t, 20*time.Second, w.Deadline)
	}
	w, err = Work{SLO: 3 * time.Second}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, w.Deadline, "no client gives up before the SLO")
}

func TestWorksThatCannotBe(t *testing.T) {
	for want, w := range map[string]Work{
		`overload: work "w": Workers must not be negative, got -1`:                          {Workers: -1},
		`overload: work "w": Capacity must be 1 to 1e+06, or 0 to measure it, got 0.5`:      {Capacity: 0.5},
		`overload: work "w": Capacity must be 1 to 1e+06, or 0 to measure it, got -3`:       {Capacity: -3},
		`overload: work "w": SLO must not be negative, got -1ns`:                            {SLO: -1},
		`overload: work "w": Deadline must be from SLO, which is 500ms, to 1m0s, got 100ms`: {Deadline: 100 * ms},
		`overload: work "w": Deadline must be from SLO, which is 2m0s, to 1m0s, got 2m0s`:   {SLO: 2 * time.Minute},
		`overload: work "w": Deadline must be from SLO, which is 500ms, to 1m0s, got -1s`:   {Deadline: -time.Second},
	} {
		w.Name = "w"
		_, err := (&Config{Works: []Work{w}}).parse([]string{"-work", "w"}, &bytes.Buffer{})
		require.EqualError(t, err, want)
	}
}

// The load is judged by the work's own SLO, its clients wait until the work's own deadline, and nothing is measured first.
func TestRunByTheWorksOwnFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("drives a real server for three seconds")
	}
	var out bytes.Buffer
	plan := Plan{Guards: []string{"none"}, Work: "patient", Loads: []float64{1}, Each: 500 * ms, Recheck: true, Seed: 1}
	config := testConfig()
	run, err := config.Measure(context.Background(), plan, &out)
	require.NoError(t, err)
	require.NotContains(t, out.String(), "measuring the capacity")
	require.InDelta(t, 100, run.Capacity, 0)
	require.InDelta(t, 100, run.CapacityAfter, 0, "a capacity that is given does not move")
	require.InDelta(t, 20_000, run.SLOMillis, 0)
	require.InDelta(t, 21_000, run.DeadlineMs, 0)
	require.InDelta(t, 100, run.Results[0].Offered, 60)
	r := run.Results[0]
	require.Zero(t, r.TimeoutsAll, "the client waits longer than a second")
	require.Greater(t, *r.P50, 1200.0)
	require.InDelta(t, r.Offered/100, r.GoodputAll, 1e-9, "every answer is in time")
}

func TestHealthOfWorkThatTakesLong(t *testing.T) {
	for name, c := range map[string]struct {
		c    counts
		due  int
		want float64
	}{
		"nothing was sent":                     {counts{}, 0, 1},
		"nothing could be answered yet":        {counts{sent: 100}, 0, 1},
		"the few answers that came are good":   {counts{sent: 100, ended: 10, good: 10}, 0, 1},
		"half of them were refused":            {counts{sent: 100, ended: 10, good: 5, refused: 5}, 0, 0.5},
		"answers that are due are missing":     {counts{sent: 100, ended: 10, good: 10}, 40, 0.25},
		"a short work: all ended, most in due": {counts{sent: 100, ended: 98, good: 98}, 33, 1},
	} {
		require.InDelta(t, c.want, c.c.inTime(c.due), 1e-9, name)
	}
}

// Loads with few answers have no percentiles, rather than wrong ones.
func TestLoadWithoutAnswersHasNoPercentiles(t *testing.T) {
	l := steady(0.5, 0, time.Second, answered, 800*ms)
	l.samples = l.samples[:1]
	r := l.result("g", 300)
	require.Nil(t, r.P50, "the only answer is not of the last half")
	require.NotNil(t, r.P99All)
	require.Nil(t, r.RefusedP99All)
	l.samples = nil
	r = l.result("g", 300)
	require.Nil(t, r.P99All)
	require.Zero(t, r.ShedAll)
	require.Zero(t, r.SendLagP99)
}
