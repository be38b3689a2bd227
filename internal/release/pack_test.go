package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	modpath "golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"
)

// What the go command finds in a repository is what is rehearsed, byte by byte: hidden folders, without vendored packages, nested
// modules, ignored files and links.
func TestPackedAsProxiesDo(t *testing.T) {
	const version = "v0.1.0"
	present, err := open("../..")
	require.NoError(t, err)
	root := t.TempDir()
	for _, f := range present.files {
		text, err := os.ReadFile(present.at(f))
		require.NoError(t, err)
		put(t, root, f, string(text))
	}
	put(t, root, "vendor/modules.txt", "# nothing\n")
	put(t, root, "vendor/example.org/a/a.go", "package a\n")
	put(t, root, "cluster/vendor/example.org/a/a.go", "package a\n")
	put(t, root, "cluster/.hidden/file", "kept\n")
	put(t, root, "telemetry/prom/LICENSE", "its own\n")
	require.NoError(t, os.Symlink("LICENSE", filepath.Join(root, "LICENSE.link")))

	walked, err := open(root)
	require.NoError(t, err)
	require.NoError(t, walked.pinAll(version))
	commit(t, root)
	put(t, root, "ignored.test", "made by go test -c\n")
	tracked, err := open(root)
	require.NoError(t, err)
	require.Greater(t, len(tracked.modules), 5)

	for _, from := range []*tree{walked, tracked} {
		r := rehearsal{tree: from, version: version, dir: t.TempDir()}
		require.NoError(t, r.packAll())
		for _, m := range from.modules {
			got, err := dirhash.HashZip(filepath.Join(r.dir, "proxy", filepath.FromSlash(m.path), "@v", version+".zip"), dirhash.Hash1)
			require.NoError(t, err)
			want := filepath.Join(t.TempDir(), "want.zip")
			f, err := os.Create(want)
			require.NoError(t, err)
			folder := m.folder
			if folder == "." {
				folder = ""
			}
			require.NoError(t, modzip.CreateFromVCS(f, modpath.Version{Path: m.path, Version: version}, root, "HEAD", folder))
			require.NoError(t, f.Close())
			sum, err := dirhash.HashZip(want, dirhash.Hash1)
			require.NoError(t, err)
			require.Equal(t, sum, got, m.path)
		}
	}
}

// put writes a file of a tree.
func put(t *testing.T, root, name, text string) {
	t.Helper()
	at := filepath.Join(root, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o750))
	require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
}

// commit makes root a repository, unless it is one, and commits everything in it.
func commit(t *testing.T, root string) {
	t.Helper()
	git(t, root, "init", "-q")
	git(t, root, "add", "-A")
	git(t, root, "-c", "user.name=Test", "-c", "user.email=test@example.org", "commit", "-q", "-m", "test")
}

// git runs git with the settings of nobody.
func git(t *testing.T, root string, args ...string) {
	t.Helper()
	_, err := program(root, []string{"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_SYSTEM=" + os.DevNull}, "git", args...)
	require.NoError(t, err)
}
