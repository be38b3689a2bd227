package exact

import (
	"testing"

	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

// TestMain starts what the tests share.
func TestMain(m *testing.M) { redistest.Main(m, nil) }
