package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/pages"
)

func TestCountsAreThoseOfTheTree(t *testing.T) {
	if _, err := os.Stat("../../examples/go.mod"); err != nil {
		t.Skip("the nested modules are not here: this is a downloaded module, not a checkout")
	}
	file := filepath.Join(t.TempDir(), "counts.json")
	require.NoError(t, writeCounts(pages.Tree{Root: "../.."}, file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var fields map[string]float64
	require.NoError(t, json.Unmarshal(text, &fields))
	require.Greater(t, fields["pages"], 20.)
	require.Greater(t, fields["programs"], 50.)
	require.LessOrEqual(t, fields["programs_run"], fields["programs"])
	require.Positive(t, fields["programs_run"])
	require.Less(t, fields["long_sentences"], 0.03)
	for _, name := range []string{"dead_links", "undocumented_options", "undocumented_metrics"} {
		require.Contains(t, fields, name)
		require.Zero(t, fields[name], name)
	}
}

func TestReferencesAreWritten(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"testdata/metrics.txt": "spillway.a.b\tgauge\ts\tA time.\n", "p/p.go": "package p\n\ntype Options struct{ X int }\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	require.NoError(t, writeReferences(pages.Tree{Root: root}))
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/metrics.md"))
	require.NoError(t, err)
	require.Contains(t, string(text), "spillway.a.b")
}
