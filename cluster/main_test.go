package cluster

import (
	"testing"

	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

// TestMain also runs the processes that tests start: each is this binary once more, under one of these names.
func TestMain(m *testing.M) {
	redistest.Main(m, map[string]func() error{"semaphore": semaphoreChild, "quota": quotaChild})
}
