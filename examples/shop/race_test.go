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

// The gate runs -check without the race detector, beside its tests. So here it runs only with it.
func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	var out strings.Builder
	require.NoError(t, run([]string{"-check", "-json", file}, &out), "%s", &out)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var f figures
	require.NoError(t, json.Unmarshal(text, &f))
	require.Greater(t, f.Load, 1.5)
	require.Contains(t, out.String(), "a pool of slow calls")
}
