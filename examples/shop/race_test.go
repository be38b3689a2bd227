//go:build race

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The gate runs -check without the race detector, beside its tests, and there all promises hold. The detector makes shop and
// clients so slow that a busy machine breaks the promises about goodput and latency, so here they do not count.
func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	var out strings.Builder
	if err := run([]string{"-check", "-json", file}, &out); err != nil {
		for _, promise := range []string{"in flight", "shutdown", "lacks", "counts no refusal", "breaker"} {
			require.NotContains(t, err.Error(), promise, "%s", &out)
		}
		t.Log(err)
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var f figures
	require.NoError(t, json.Unmarshal(text, &f))
	require.Greater(t, f.Load, 1.5)
	require.Contains(t, out.String(), "a pool of slow calls")
}
