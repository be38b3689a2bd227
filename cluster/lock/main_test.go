package lock

import (
	"testing"

	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

// TestMain also runs the processes that tests start: each is this binary once more.
func TestMain(m *testing.M) { redistest.Main(m, map[string]func() error{"semaphore": semaphoreChild}) }
