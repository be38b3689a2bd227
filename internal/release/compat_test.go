package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The modules of a release build with later roots that keep what they use, even if it is internal.
func TestCompat(t *testing.T) {
	root := released(t)
	for _, c := range []struct{ name, inner, want string }{
		{"the same", "package inner\n\nfunc Two() int { return 2 }\n", ""},
		{"more", "package inner\n\nfunc Two() int { return 1 + 1 }\n\nfunc Three() int { return 3 }\n", ""},
		{"less", "package inner\n\nfunc Three() int { return 3 }\n", "undefined: inner.Two"},
		{"other", "package inner\n\nfunc Two() string { return \"2\" }\n", "mismatched types string and int"},
	} {
		put(t, root, "internal/inner/inner.go", c.inner)
		out, err := compat(t, root, nil)
		if c.want == "" {
			require.NoError(t, err, c.name)
			require.Equal(t, "ok "+base+"/cluster v0.10.0 builds with this root\nok "+base+"/rules/yaml v0.10.0 builds with this root\n", out)
			continue
		}
		require.ErrorContains(t, err, base+"/cluster v0.10.0 does not build with this root: ", c.name)
		require.ErrorContains(t, err, c.want, c.name)
		require.Equal(t, "ok "+base+"/rules/yaml v0.10.0 builds with this root\n", out, "it does not use the root")

		out, err = compat(t, root, map[string]string{"v0.10.0": "inner has moved"})
		require.NoError(t, err)
		require.Contains(t, out, "ok 1 modules of v0.10.0 do not build with this root: inner has moved\n")
		_, err = compat(t, root, map[string]string{"v0.9.0": "inner has moved"})
		require.Error(t, err, "the exception is for another release")
	}
}

func TestCompatBeforeTheFirstRelease(t *testing.T) {
	root := t.TempDir()
	put(t, root, "go.mod", "module "+base+"\n\ngo 1.25.0\n")
	out, err := compat(t, root, nil)
	require.NoError(t, err)
	require.Contains(t, out, "not a repository")
	commit(t, root)
	git(t, root, "tag", "v0.1.0-rc.1")
	git(t, root, "tag", "very-old")
	out, err = compat(t, root, nil)
	require.NoError(t, err)
	require.Contains(t, out, "no release is tagged yet")
}

func TestLastRelease(t *testing.T) {
	require.Equal(t, "v0.10.0", lastRelease([]string{"v0.9.0", "v0.10.0", "v0.11.0-rc.1", "v1", "vacuum", "v0.2.0"}))
	require.Empty(t, lastRelease(nil))
}

// Only a version before 1.0 may be followed by a root that breaks it.
func TestBrokenBefore1Only(t *testing.T) {
	for version, why := range broken {
		require.True(t, strings.HasPrefix(version, "v0."), version)
		require.NotEmpty(t, why, version)
	}
}

// released returns a repository with the releases 0.9.0, whose modules would not build, and 0.10.0.
func released(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	put(t, root, "go.mod", "module "+base+"\n\ngo 1.25.0\n")
	put(t, root, "internal/inner/inner.go", "package inner\n\nfunc Two() int { return 2 }\n")
	put(t, root, "rules/yaml/go.mod", "module "+base+"/rules/yaml\n\ngo 1.25.0\n")
	put(t, root, "rules/yaml/yaml.go", "package yaml\n\nfunc Four() int { return 4 }\n")
	put(t, root, "cluster/go.mod", "module "+base+"/cluster\n\ngo 1.25.0\n\nrequire (\n\t"+base+" v0.10.0\n\t"+base+"/rules/yaml v0.10.0\n)\n")
	put(t, root, "cluster/cluster.go", "package cluster\n\nvar Two int = nothing\n")
	commit(t, root)
	git(t, root, "tag", "v0.9.0")
	put(t, root, "cluster/cluster.go", `package cluster

import (
	"github.com/spillway-go/spillway/internal/inner"
	"github.com/spillway-go/spillway/rules/yaml"
)

var Six int = inner.Two() + yaml.Four()
`)
	put(t, root, "cluster/cluster_test.go", "package cluster\n\nvar _ = inner.OfTests()\n") // users do not build it
	commit(t, root)
	git(t, root, "tag", "v0.10.0")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "cluster"))) // the present modules do not matter
	return root
}

func compat(t *testing.T, root string, broken map[string]string) (string, error) {
	t.Helper()
	present, err := open(root)
	require.NoError(t, err)
	var out strings.Builder
	err = present.compat(t.TempDir(), broken, &out)
	return out.String(), err
}
