package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
)

// The files that users copy are valid: those of deploy, and the one of docs/proxy.md.
func TestShippedFilesAreValid(t *testing.T) {
	c, err := config.Load("deploy/spillwayd.yaml")
	require.NoError(t, err)
	require.NoError(t, try(c))

	manifest, err := os.ReadFile("deploy/kubernetes.yaml")
	require.NoError(t, err)
	_, file, found := strings.Cut(string(manifest), "spillwayd.yaml: |\n")
	require.True(t, found)
	file, _, found = strings.Cut(file, "\n---\n")
	require.True(t, found)
	c, err = config.Parse([]byte(file))
	require.NoError(t, err, file)
	require.NoError(t, try(c))

	page, err := os.ReadFile("../../docs/proxy.md")
	if os.IsNotExist(err) {
		t.Skip("the pages are not here: this is a downloaded module, not a checkout")
	}
	require.NoError(t, err)
	_, file, found = strings.Cut(string(page), "```yaml\n")
	require.True(t, found)
	file, _, found = strings.Cut(file, "```")
	require.True(t, found)
	own := filepath.Join(t.TempDir(), "spillwayd.yaml")
	require.NoError(t, os.WriteFile(own, []byte(file), 0o600))
	c, err = config.Load(own)
	require.NoError(t, err, file)
	c.Listen[0].TLS = nil // its files are not here
	require.NoError(t, try(c))
}

// The manifest gives the process enough time to drain.
func TestShippedFilesLeaveTimeToDrain(t *testing.T) {
	manifest, err := os.ReadFile("deploy/kubernetes.yaml")
	require.NoError(t, err)
	require.Contains(t, string(manifest), "terminationGracePeriodSeconds: 45")
	require.Contains(t, string(manifest), "drain: {delay: 5s, timeout: 30s}")
	unit, err := os.ReadFile("deploy/spillwayd.service")
	require.NoError(t, err)
	require.Contains(t, string(unit), "TimeoutStopSec=45s")
}
