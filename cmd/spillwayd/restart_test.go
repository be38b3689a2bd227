package main

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
)

// A process that follows on another one begins with what that has learnt, even if it was killed.
func TestARestartBeginsWithWhatWasLearnt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	begin := func() *process {
		return start(t, func(http.ResponseWriter, *http.Request) {}, func(c *config.Config) { c.State = file })
	}
	first := begin()
	require.NoError(t, first.s.proxy.Shedder().Resume(200, 20*time.Millisecond)) // as if it had answered requests
	require.Eventually(t, func() bool {
		rate, latency := begin().s.proxy.Shedder().Learnt()
		return rate == 200 && latency == 20*time.Millisecond
	}, patience, 500*time.Millisecond)
}
