package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands of the page for users accept what a release makes, and nothing else.
func TestVerifyPage(t *testing.T) {
	for _, tool := range []string{"sh", "ssh-keygen", "sha256sum"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	script := block(t, "../../docs/verify.md", "ssh-keygen -Y verify")
	folder := t.TempDir()
	const binary = "spillwayd_v0.1.0_linux_amd64"
	put(t, folder, binary, "binary")
	put(t, folder, "another", "not downloaded")
	sums, err := checksums(folder)
	require.NoError(t, err)
	r := rehearsal{tree: &tree{root: folder}, dir: t.TempDir()}
	signers, err := r.signWith("", sums)
	require.NoError(t, err)
	public, err := os.ReadFile(signers)
	require.NoError(t, err)
	put(t, folder, "release-signers", string(public))
	require.NoError(t, os.Remove(folder+"/another"))

	out, err := program(folder, nil, "sh", "-c", script)
	require.NoError(t, err)
	require.Contains(t, out, `Good "spillway" signature for spillway-release`)
	require.Contains(t, out, binary+": OK")

	put(t, folder, binary, "Binary")
	_, err = program(folder, nil, "sh", "-c", script)
	require.Error(t, err, "the binary has changed")
	again, err := checksums(folder)
	require.NoError(t, err)
	require.Equal(t, sums, again)
	_, err = program(folder, nil, "sh", "-c", script)
	require.ErrorContains(t, err, "Signature verification failed", "the checksums have changed with it")
}

// block returns the block of commands of a page that has a text.
func block(t *testing.T, page, text string) string {
	t.Helper()
	all, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, part := range strings.Split(string(all), "\n```sh\n")[1:] {
		commands, _, closed := strings.Cut(part, "\n```\n")
		require.True(t, closed)
		if strings.Contains(commands, text) {
			return commands
		}
	}
	require.Fail(t, "no such block", "%s: %s", page, text)
	return ""
}

// The commands of the page for maintainers make a commit that can be released, and leave the tree as it was.
func TestReleasingPage(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the program is not built again")
	}
	const page, version = "../../docs/releasing.md", "v0.1.0"
	present, err := open("../..")
	require.NoError(t, err)
	root := t.TempDir()
	for _, f := range present.files {
		text, err := os.ReadFile(present.at(f))
		require.NoError(t, err)
		put(t, root, f, string(text))
	}
	key := filepath.Join(t.TempDir(), "spillway-release")
	sh := func(script string) string {
		out, err := program(root, []string{
			"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_SYSTEM=" + os.DevNull, "GOWORK=", "GOFLAGS=",
			"GIT_AUTHOR_NAME=Test", "GIT_AUTHOR_EMAIL=test@example.org", "GIT_COMMITTER_NAME=Test", "GIT_COMMITTER_EMAIL=test@example.org",
		}, "sh", "-e", "-c", script)
		require.NoError(t, err)
		return strings.TrimSpace(out)
	}
	sh(block(t, page, "ssh-keygen") + "\nmv spillway-release " + key)
	commit(t, root)
	before := sh("git rev-parse HEAD^{tree}")
	sh(block(t, page, "-write"))
	require.Equal(t, before, sh("git rev-parse HEAD^{tree}"))
	list, _, found := strings.Cut(block(t, page, "git push"), "git push origin refs/tags")
	require.True(t, found)
	pushed := sh("git() { echo \"$@\"; }; xargs() { cat; }\n" + list) // what would be pushed before the tag of the root
	require.Contains(t, pushed, "refs/tags/cluster/v0.1.0\n")
	require.NotContains(t, pushed, "refs/tags/v0.1.0")

	sh("git checkout -q v0.1.0 && rm release.tags")
	tagged, err := open(root)
	require.NoError(t, err)
	require.NoError(t, tagged.checkTags(version))
	r := rehearsal{tree: tagged, version: version, dir: t.TempDir(), final: true}
	require.NoError(t, r.packAll())
	folder := t.TempDir()
	put(t, folder, "file", "")
	sums, err := checksums(folder)
	require.NoError(t, err)
	signers, err := r.signWith(key, sums)
	require.NoError(t, err)
	require.NoError(t, verify(sums, signers))
}
