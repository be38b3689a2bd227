package console_test

import (
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/console"
	"github.com/spillway-go/spillway/internal/browser"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

// A browser looks for five seconds at a real gate of four policies. The CPU of this process, which is the server, the runtime and
// the idle driver of the browser, is at most 0.2 % of a core.
func TestBrowserCostsTheServerLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector costs more than the page")
	}
	gate := spillway.New(spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(1000, time.Second)})),
		spillway.Must(limiter.New(limiter.Concurrency{Limit: 1000})), spillway.Must(shedder.New(nil)), spillway.Must(breaker.New(nil)))
	page := console.New(map[string]stats.Source{"api": gate}, nil)
	t.Cleanup(func() { page.Close() })
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	b := browser.Start(t)
	tab := b.Open(t, server.URL, screens["desk-light"])
	samples := `spillwayCharts.drawn(document.querySelector(".chart")).plot.data[0].length`
	tab.Wait(t, `document.querySelector(".chart canvas") && `+samples+` >= 3`, 20*time.Second)

	for _, domain := range []string{"Network", "Log", "Runtime", "Page"} { // so that the driver has nothing to read
		require.NoError(t, tab.Call(domain+".disable", nil, nil))
	}

	const watched = 5 * time.Second
	least := 1.0
	for range 4 { // another program may empty the caches of the processor
		before := cpuOfProcess(t)
		time.Sleep(watched) // the browser polls in real time
		used := cpuOfProcess(t) - before
		share := used.Seconds() / watched.Seconds()
		t.Logf("%v of CPU in %v: %.3f %% of a core", used, watched, 100*share)
		if least = min(least, share); least <= 0.002 {
			break
		}
	}
	var seen int
	tab.Eval(t, samples, &seen)
	require.GreaterOrEqual(t, seen, 7, "it was looked at all the time")
	require.LessOrEqual(t, least, 0.002)
}

func cpuOfProcess(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
