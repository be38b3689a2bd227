package overload

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary be the server of its own runs.
func TestMain(m *testing.M) {
	if IsChild() {
		os.Exit(Main(testConfig()))
	}
	os.Exit(m.Run())
}

func TestRunEndToEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("drives a real server for five seconds")
	}
	c := &Config{}
	dir := t.TempDir()
	var out bytes.Buffer
	o, err := c.parse([]string{"-loads", "0.5", "-seconds", "1", "-guards", "fixed:8", "-recheck=false", "-report", "none"}, &out)
	require.NoError(t, err)
	o.capacityTime = time.Second

	run, err := c.measure(context.Background(), o, newProgress(&out))
	require.NoError(t, err)
	require.Greater(t, run.Capacity, 10.0, "2 ms of CPU under a quota of 0.4 make about 180 a second")
	require.Less(t, run.Capacity, 1000.0, "2 ms of CPU allow at most 500 a second, and a stressed calibration a few more")
	require.Len(t, run.Results, 1)
	r := run.Results[0]
	require.Equal(t, "fixed:8", r.Guard)
	require.InDelta(t, 0.5*run.Capacity, r.Offered, 0.25*run.Capacity)
	require.Greater(t, r.GoodputAll, 0.1, "half of what it can carry is answered")
	require.Less(t, r.GoodputAll, 0.9)
	require.NotNil(t, r.P50)
	require.Greater(t, *r.P50, 0.5, "no answer is quicker than the work")
	require.Less(t, r.ShedAll, 0.5)

	require.Len(t, run.Series, 1)
	s := run.Series[0]
	require.Equal(t, []Span{{Load: 0.5, Start: s.Spans[0].Start, End: s.Spans[0].End}}, s.Spans)
	require.NotEmpty(t, s.Server, "the server shows its view")
	last := s.Server[len(s.Server)-1]
	require.NotNil(t, last.Limit)
	require.InDelta(t, 8, *last.Limit, 0)
	require.Positive(t, last.Arrived)

	name := filepath.Join(dir, "out.json")
	require.NoError(t, writeJSON(name, run))
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	var fields struct {
		Capacity float64          `json:"capacity_rps"`
		Results  []map[string]any `json:"results"`
	}
	require.NoError(t, json.Unmarshal(data, &fields))
	for _, name := range []string{"guard", "load", "offered_rps", "goodput", "p50_ms", "p99_ms", "refused_p99_ms", "shed", "timeouts", "goodput_all"} {
		require.Contains(t, fields.Results[0], name)
	}
	page, err := writeReport(filepath.Join(dir, "out.html"), run)
	require.NoError(t, err)
	require.FileExists(t, page)
	require.NotContains(t, out.String(), "\r", "plain lines where there is no terminal")
	left, err := filepath.Glob("/sys/fs/cgroup/*/spillway-overload-*")
	require.NoError(t, err)
	for _, dir := range left {
		require.NotContains(t, dir, "-"+strconv.Itoa(os.Getpid()), "the control group is removed")
	}
}

func TestRunStopsWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out bytes.Buffer
	require.Error(t, (&Config{}).Run(ctx, []string{"-quota", "0", "-report", "none"}, &out))
}

func TestFlagsThatCannotBeRight(t *testing.T) {
	for _, args := range [][]string{
		{"-loads", "0"},
		{"-loads", "-1"},
		{"-loads", "NaN"},
		{"-loads", "51"},
		{"-loads", "1,x"},
		{"-loads", ""},
		{"-guards", "nobody"},
		{"-guards", "fixed:0"},
		{"-guards", "fixed:x"},
		{"-seconds", "0"},
		{"-seconds", "NaN"},
		{"-seconds", "601"},
		{"-settle", "-1"},
		{"-quota", "-0.1"},
		{"-quota", "1.1"},
		{"-quota", "NaN"},
		{"-work", "none"},
		{"-guards", "rate:0"},
		{"-guards", "rate:x"},
		{"-guards", "rate:NaN"},
		{"stray"},
	} {
		_, err := (&Config{}).parse(args, &bytes.Buffer{})
		require.Error(t, err, "%q", args)
	}
}

func TestFlagsDefaults(t *testing.T) {
	o, err := (&Config{Guards: []Guard{{Name: "mine"}}, DefaultGuards: "none,mine"}).parse(nil, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, []float64{0.5, 0.9, 2, 5, 10, 0.5}, o.Loads)
	require.Equal(t, []string{"none", "mine"}, o.Guards)
	require.Equal(t, "cpu", o.Work)
}
