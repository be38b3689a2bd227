package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The files of notices name the modules that are linked, in their versions, and have their licenses.
func TestNoticesAreUpToDate(t *testing.T) {
	present, err := open("../..")
	require.NoError(t, err)
	texts, err := present.notices()
	require.NoError(t, err)
	require.Len(t, texts, 2)
	for name, want := range texts {
		got, err := os.ReadFile(present.at(name))
		require.NoError(t, err)
		require.Equal(t, want, string(got), "%s is old: go run ./internal/release -notices", name)
	}
	for _, part := range []string{
		"The standard library of Go, LICENSE\n",                          // linked into every program
		base + "/internal/report/uplot, LICENSE\n",                       // embedded
		"github.com/prometheus/client_golang/internal/github.com/golang", // a copy inside another module
		"github.com/go-ole/go-ole v1.",                                   // on Windows only
		"github.com/shoenig/go-m1cpu v0.",                                // on macOS only
		", NOTICE\n",
	} {
		require.Contains(t, texts[binaryNotices], part)
	}
	require.Contains(t, texts[sourceNotices], base+"/internal/report/uplot, LICENSE\n")
	require.NotContains(t, texts[sourceNotices], "gopsutil", "its sources are not here")
}

func TestModuleWithoutLicense(t *testing.T) {
	root := t.TempDir()
	put(t, root, "a/b/b.go", "package b\n")
	p := listed{Dir: filepath.Join(root, "a", "b"), EmbedFiles: []string{"js/x.js"}, Module: gomod{"example.org/m", "v1.2.3", root}}
	put(t, root, "a/b/js/x.js", "")
	put(t, root, "c/LICENSE", "elsewhere\n")
	found := make(map[string]string)
	require.EqualError(t, p.licenses(found), "example.org/m v1.2.3 has no license")

	put(t, root, "COPYING", "of all\n")
	put(t, root, "a/b/js/LICENSE.md", "\r\nof x\r\n\r\n")
	require.NoError(t, p.licenses(found))
	require.Equal(t, map[string]string{
		"example.org/m v1.2.3, COPYING":           "of all\n",
		"example.org/m/a/b/js v1.2.3, LICENSE.md": "of x\n",
	}, found)

	ours := listed{Dir: p.Dir, Module: gomod{base + "/m", "", root}}
	clear(found)
	require.NoError(t, ours.licenses(found), "our own license is not a notice")
	require.Empty(t, found)
}

func TestMerged(t *testing.T) {
	got := merged(map[string]string{"b, LICENSE": "same\n", "a, LICENSE": "same\n", "a, NOTICE": "other\n"})
	const rule = "================================================================================\n"
	require.Equal(t, "\n"+rule+"a, LICENSE\nb, LICENSE\n"+rule+"\nsame\n\n"+rule+"a, NOTICE\n"+rule+"\nother\n", got)
}
