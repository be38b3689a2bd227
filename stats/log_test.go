package stats

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A metric that is renamed must not silence the log.
func TestLogWatchesMetricsThatExist(t *testing.T) {
	catalog, err := os.ReadFile("../testdata/metrics.txt")
	require.NoError(t, err)
	known := map[string]bool{}
	for line := range strings.Lines(string(catalog)) {
		name, _, _ := strings.Cut(line, "\t")
		known[name] = true
	}
	for kind, w := range watches {
		for _, figure := range append([]string{w.state, w.grows, w.refuses, w.why}, w.figures...) {
			require.True(t, figure == "" || known["spillway."+kind+"."+figure], "spillway.%s.%s", kind, figure)
		}
	}
	for _, name := range []string{"spillway.shedder.sensor_up", "spillway.shedder.tick_time", "spillway.shedder.signal"} {
		require.True(t, known[name], name)
	}
}
