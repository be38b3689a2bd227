package main

import (
	"os"
	"os/exec"
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
