package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The picture in the documentation is what the limits do today.
func TestPictureIsUpToDate(t *testing.T) {
	published, err := os.ReadFile(filepath.Join("..", "..", "docs", "limits.svg"))
	require.NoError(t, err)
	require.Equal(t, draw(rows()), string(published), "run: go run ./examples/limits -o docs/limits.svg")
}

// What the page about limits says of the picture.
func TestLimitsLetThroughWhatTheyPromise(t *testing.T) {
	most, all := map[string]int{}, map[string]int{}
	for _, r := range rows() {
		most[r.name], all[r.name] = mostWithin(time.Second, r.passed), len(r.passed)
	}
	require.Equal(t, 50, all["asked for"])
	require.Equal(t, 19, most["FixedWindow"], "nearly twice the limit, at the edge")
	require.Equal(t, perSecond, most["SlidingLog"])
	require.Equal(t, perSecond, most["SlidingWindow"])
	require.Equal(t, perSecond, most["Shaper"], "even, however they come")
	require.LessOrEqual(t, most["Bucket"], 2*perSecond-1, "the burst, and what comes meanwhile")
	require.LessOrEqual(t, most["Bucket, small burst"], 3+perSecond-1)
	require.LessOrEqual(t, most["WarmUp"], perSecond)
	require.LessOrEqual(t, most["Concurrency"], perSecond)
	for name, n := range all {
		if name != "asked for" && name != "Shaper" {
			require.LessOrEqual(t, n, all["Shaper"], "%s: what waits is not lost", name)
		}
	}
}

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.svg")
	require.NoError(t, run([]string{"-o", file}, nil))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, run(nil, &out))
	require.Equal(t, string(text), out.String())
	require.Error(t, run([]string{"-x"}, &out))
}
