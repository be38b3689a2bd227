package feed

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/enum"
	"github.com/spillway-go/spillway/stats"
)

type light uint8

func (l light) String() string { return enum.String("road: Light", []string{"red", "green"}, l) }

type refused struct {
	Index          int
	Policy, Reason string
	Count          int64
}

type figures struct {
	Name     string
	Total    int64
	Share    float64
	Took     time.Duration
	Since    time.Time
	On       bool
	Err      error
	Light    light
	Why      string
	By       [2]int64
	ByReason []refused
}

var figuresRows = []Row{
	Count("Total", "total", "{request}", "", stats.Label{Name: "result", Value: "admitted"}),
	Gauge("Share", "share", "1", ""),
	Gauge("Took", "took", "s", ""),
	Gauge("Since", "since", "s", ""),
	Gauge("On", "on", "", ""),
	Up("Err", "up", ""),
	State("Light", "light", "", "light", "red", "green"),
	Info("Why", "why", "", "why"),
	By("By", "by", "{request}", "", "source", []string{"a", "b"}),
	ByReason("ByReason", "refusals", ""),
}

// lines returns the metrics of f as text.
func lines(t *testing.T, f *figures) (out []string) {
	t.Helper()
	for m := range Of(t, figuresRows, func() figures { return *f }) {
		require.Equal(t, t, m.Of)
		require.Equal(t, stats.Label{Name: "policy", Value: "db"}, m.Labels[0])
		out = append(out, fmt.Sprint(m.Name, m.Labels[1:], " ", m.Value))
	}
	return out
}

func TestOf(t *testing.T) {
	require.Equal(t, []string{
		"total[{result admitted}] 0", "share[] 0", "took[] 0", "on[] 0", "up[] 1", "light[{light red}] 1", "light[{light green}] 0",
		"by[{source a}] 0", "by[{source b}] 0",
	}, lines(t, &figures{Name: "db"}), "a zero time and an empty text are left out")

	require.Equal(t, []string{
		"total[{result admitted}] 7", "since[] 1.5", "on[] 1", "up[] 0", "light[{light red}] 0", "light[{light green}] 1",
		"why[{why slow}] 1", "by[{source a}] 3", "by[{source b}] 4", "refusals[{reason full}] 7", "refusals[{reason late}] 1",
	}, lines(t, &figures{
		Name: "db", Total: 7, Share: math.Inf(1), Took: -1, Since: time.Unix(1, 5e8), On: true, Err: errors.New("x"), Light: 1, Why: "slow",
		By:       [2]int64{3, 4},
		ByReason: []refused{{0, "db", "full", 2}, {1, "db", "late", 1}, {2, "db", "full", 5}},
	}), "infinite and unknown figures are left out; two policies of one name count together")
}

func TestOfStopsWhenTheLoopEnds(t *testing.T) {
	full := figures{Name: "db", Why: "x", Since: time.Unix(1, 0), ByReason: []refused{{}, {Reason: "b"}}}
	all := slices.Collect(Of(t, figuresRows, func() figures { return full }))
	for n := 1; n <= len(all); n++ {
		got := 0
		for range Of(t, figuresRows, func() figures { return full }) {
			if got++; got == n {
				break
			}
		}
		require.Equal(t, n, got)
	}
}
