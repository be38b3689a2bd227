package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeromicro/go-zero/core/logx"
)

func TestRunWritesTableAndJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "micro.json")
	var out bytes.Buffer
	args := []string{"-passes", "2", "-benchtime", "1ms", "-run", "^spillway shedder/refuse$", "-json", file}
	require.NoError(t, run(args, &out))
	require.Regexp(t, `(?m)^\| baseline +\| two clock reads +\| admit +\| 100 % .*\| 1\.00 `, out.String())
	require.Regexp(t, `(?m)^\| shedder +\| spillway shedder +\| refuse `, out.String())

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var got struct{ Results []result }
	require.NoError(t, json.Unmarshal(text, &got))
	require.Len(t, got.Results, 4)
	for i, r := range got.Results {
		require.Equal(t, []int{1, 2}[i%2], r.Procs)
		require.Positive(t, r.NS)
		require.Positive(t, r.Taken)
		if i < 2 {
			require.Equal(t, "two clock reads/admit", r.key())
			require.Equal(t, 1.0, r.Ratio)
		} else {
			require.Equal(t, "spillway shedder/refuse", r.key())
		}
	}
}

// Allocations are counted by the harness, and an op is called by as many goroutines as the plan says.
func TestMeasureCounts(t *testing.T) {
	var sink *[64]byte
	all := []entry{
		{"nothing", baseline, admit, always(func() op { return func() bool { return true } })},
		{"allocates twice", baseline, admit, always(func() op {
			return func() bool {
				for range 2 {
					sink = new([64]byte)
				}
				return sink != nil
			}
		})},
	}
	p := plan{passes: 3, slice: time.Millisecond, procs: []int{1}, only: regexp.MustCompile("")}
	results, err := p.measure(all)
	require.NoError(t, err)
	require.Equal(t, 0, results[0].Allocs)
	require.Equal(t, 2, results[1].Allocs)
	require.Greater(t, results[1].Ratio, 1.0)
	require.Equal(t, 1.0, results[1].Taken)
}

func TestMeasureTellsWhatIsNeverTaken(t *testing.T) {
	all := []entry{{"closed", baseline, admit, always(func() op { return func() bool { return false } })}}
	p := plan{passes: 1, slice: time.Millisecond, procs: []int{1}, only: regexp.MustCompile("")}
	_, err := p.measure(all)
	require.ErrorIs(t, err, errNeverTaken)
}

// Every entry starts, and most of its requests go the way that it is there for.
func TestEntriesTakeTheirPath(t *testing.T) {
	logx.Disable()
	seen := map[string]bool{}
	for _, e := range entries() {
		require.False(t, seen[e.key()], e.key())
		seen[e.key()] = true
		do, stop, err := e.start()
		require.NoError(t, err, e.key())
		taken := 0
		for range 100 {
			if do() {
				taken++
			}
		}
		require.Greater(t, taken, 50, e.key())
		if stop != nil {
			stop()
		}
	}
}

func TestBadFlags(t *testing.T) {
	for flag, value := range map[string]string{"-passes": "0", "-benchtime": "0s", "-procs": "1,x", "-run": "("} {
		require.ErrorContains(t, run([]string{flag, value}, &bytes.Buffer{}), flag)
	}
}

func TestQuantile(t *testing.T) {
	require.Equal(t, 3.0, quantile([]float64{3}, 0.75))
	require.Equal(t, 2.5, quantile([]float64{1, 2, 3, 4}, 0.5))
	require.Equal(t, 4.0, quantile([]float64{1, 2, 3, 4}, 1))
}
