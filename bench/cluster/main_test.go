package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("SKIPPED: no redis-server on this machine (apt-get install redis-server, brew install redis)")
	}
	var out strings.Builder
	require.NoError(t, run([]string{"-passes", "1", "-calls", "40", "-callers", "4"}, &out))
	require.Contains(t, out.String(), "spillway Bucket")
	require.Equal(t, 9, strings.Count(out.String(), "\n"))
}
