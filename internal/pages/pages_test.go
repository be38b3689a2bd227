package pages

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree writes files into a new folder.
func tree(t *testing.T, files map[string]string) Tree {
	t.Helper()
	root := t.TempDir()
	files = maps.Clone(files)
	files[".ci/run"] += "the gate\n\t\texamples/shown -seconds 1\n"
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return Tree{Root: root}
}

func TestSentencesAreThoseOfProse(t *testing.T) {
	const page = "# What is skipped is a heading\n\n<!-- whoever -->\n| whoever | reads |\n\n" +
		"Callers that wait [are\ntold](https://whoever.example) `whoever` `a b`. lower, e.g. here:\n\n" +
		"```\nwhoever\n```\n\n    whoever\n\n- What was refused is lost.\n- Why not?\n  Two lines (of one).\n"
	sentences, err := tree(t, map[string]string{
		"docs/deep/page.md": page, "CHANGELOG.md": "Whoever reads.\n", "testdata/page.md": "Whoever reads.\n",
		"a/doc.go": "// Package a is one.\n//\n//\twhoever()\npackage a\n", "a/doc_test.go": "// Whoever.\npackage a\n",
	}).Sentences()
	require.NoError(t, err)
	var texts []string
	for _, s := range sentences {
		texts = append(texts, s.Text)
	}
	require.Equal(t, []string{
		"Callers that wait are told CODE CODE.", "lower, e.g here:", "What was refused is lost.", "Why not?", "Two lines (of one).",
		"Package a is one.",
	}, texts)
	require.Equal(t, 7, sentences[0].Words())
	require.False(t, sentences[0].Long())
	require.Len(t, NotPlain(sentences, nil), 2)
	require.Empty(t, NotPlain(sentences, map[string]string{"are told": "a reason", "refused is lost": "a reason"}))
	require.Len(t, NotPlain(nil, map[string]string{"are told": "a reason"}), 1)
}

func TestDeadLinksAreFound(t *testing.T) {
	dead, err := tree(t, map[string]string{
		"README.md": "[a](docs/a.md) [b](docs/a.md#a-part) [c](docs) [d](#none) [e](https://nowhere.example/x) [f](b.md)\n",
		"docs/a.md": "# A Part\n\n[up](../README.md) [gone](gone.md#x) [no](../README.md#no)\n\n```\n[x](y)\n# No Part\n```\n",
	}).DeadLinks()
	require.NoError(t, err)
	require.Equal(t, []string{
		"README.md: (#none) has no target", "README.md: (b.md) has no target",
		"docs/a.md: (gone.md#x) has no target", "docs/a.md: (../README.md#no) has no target",
	}, dead)
}

func TestProgramsAreLocated(t *testing.T) {
	const page = "```go\na := 1\n```\n\n```go\n  b()\n\n  c()\n```\n\n```go\nd()\n```\n\n```go\npackage main\n```\n\n```console\n$ a\n```\n\n```sh\na\n```\n"
	tr := tree(t, map[string]string{
		"page.md": page, "one/one.go": "package one\n\nfunc f() {\n\ta := 1\n\tg(a)\n}\n", "one/one_test.go": "package one\n",
		"two/two.go": "package two\n\nfunc f() {\n\tif true {\n\t\tb()\n\n\t\tc()\n\t}\n}\n",
	})
	programs, err := tr.Programs()
	require.NoError(t, err)
	require.Len(t, programs, 4)
	require.Equal(t, []string{"one/one.go", "two/two.go", "", ""},
		[]string{programs[0].Source, programs[1].Source, programs[2].Source, programs[3].Source})
	require.True(t, programs[0].Run)
	require.False(t, programs[1].Run, "no test of the package")
	require.True(t, programs[3].Whole())
	require.True(t, programs[3].Run, "commands try it")
	require.False(t, programs[2].Run)
	require.Equal(t, "page.md:12", programs[2].String())

	programs, err = tree(t, map[string]string{"page.md": "```go\na()\n```\n", "examples/shown/main.go": "package main\na()\n"}).Programs()
	require.NoError(t, err)
	require.True(t, programs[0].Run, "the gate runs it")

	_, err = tree(t, map[string]string{"page.md": "```go\na()\n"}).Programs()
	require.ErrorContains(t, err, "page.md")
}

func TestUndocumentedOptionsAndMetricsAreFound(t *testing.T) {
	files := map[string]string{
		"testdata/metrics.txt": "spillway.a.b\tgauge\ts\tThe time | of [Limit].\nspillway.a.c\tcounter\t1\t\n",
		"README.md":            "A page.\n",
		"p/p.go": "package p\n\n// Options are options.\ntype Options struct {\n\t// A is the first.\n\tA []Signal\n\tB map[string]func() // the second\n" +
			"\tC int\n\thidden int\n}\n\ntype Signal struct{ Read *int }\n\ntype Other struct{ X int }\n",
		"internal/q/q.go": "package q\n\ntype Options struct{ X int }\n",
		"m/main.go":       "package main\n\ntype Options struct{ X int }\n",
	}
	tr := tree(t, files)
	texts, err := tr.References()
	require.NoError(t, err)
	require.Contains(t, texts[metricsPage], "## a\n\n| metric | kind | unit | meaning |\n|---|---|---|---|\n| `spillway.a.b` | gauge | s | The time \\| of `Limit`. |\n")
	require.Contains(t, texts[optionsPage], "### p.Options\n\n| option | type | meaning |\n|---|---|---|\n| `A` | `[]Signal` | A is the first. |\n"+
		"| `B` | `map[string]func` | the second |\n| `C` | `int` |  |\n\n### p.Signal\n")
	maps.Copy(files, texts)
	options, metrics, err := tree(t, files).Undocumented()
	require.NoError(t, err)
	require.Equal(t, []string{
		"p: Options.C has no comment or no row in docs/reference/options.md",
		"p: Signal.Read has no comment or no row in docs/reference/options.md",
	}, options)
	require.Equal(t, []string{"spillway.a.c has no help or no row in docs/reference/metrics.md"}, metrics)
	files[optionsPage], files[metricsPage] = "# Options\n", "# Metrics\n"
	options, metrics, err = tree(t, files).Undocumented()
	require.NoError(t, err)
	require.Len(t, options, 4)
	require.Len(t, metrics, 2)
}
