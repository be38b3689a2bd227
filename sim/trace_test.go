package sim_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/sim"
)

const ms = time.Millisecond

// A replay is exact: with one request at a time, each is in the gate when its CPU for parsing is used, and inside for what
// was recorded.
func TestReplayIsExact(t *testing.T) {
	trace := []sim.Arrival{
		{At: 0, Class: "a", CPU: 3 * ms, Wait: 40 * ms}, {At: 700 * ms, Class: "b", CPU: 20 * ms},
		{At: 1500*ms + 1, Class: "a", Wait: 5 * ms}, {At: 2900 * ms, Class: "b", CPU: 7 * ms, Wait: ms},
	}
	s := sim.Replay(trace, sim.Machine{Cores: 1, Parse: ms})
	s.Client.Useful = time.Second
	var w watcher
	for seed := range uint64(3) {
		w = watcher{}
		r, err := sim.Run(s, seed, func(*sim.Host) (*spillway.Gate, error) { return spillway.New(&w), nil })
		require.NoError(t, err)
		for i, a := range trace {
			require.Equal(t, a.At+ms, w.arrived[i], "after parsing")
			require.Equal(t, a.CPU+a.Wait, w.latency[i])
			require.Equal(t, a.Class, w.keys[i])
		}
		require.Len(t, w.arrived, len(trace))
		require.InDelta(t, 1/0.0085, r.Capacity, 1e-6, "the mean CPU is 7.5 ms and one for parsing")
		require.Equal(t, float64(len(trace))/3/r.Capacity, r.Goodput)
	}
	require.Len(t, s.Phases, 3)
	require.InDelta(t, 0.025, s.Phases[0].Load, 1e-12, "4 and 21 ms of CPU in the first second")
	require.InDelta(t, 0.001, s.Phases[1].Load, 1e-12)
}

// A watcher keeps what a policy sees, in the order of the arrivals: they do not overlap in its test.
type watcher struct {
	arrived, latency []time.Duration
	keys             []string
}

func (w *watcher) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	w.arrived = append(w.arrived, r.Arrived.Sub(time.Unix(1_000_000_000, 0)))
	w.keys = append(w.keys, r.Key)
	return 0, nil
}

func (w *watcher) Done(_ spillway.Request, _ spillway.Ticket, r spillway.Result) {
	w.latency = append(w.latency, r.Latency)
}

func TestScaleSendsMore(t *testing.T) {
	trace := make([]sim.Arrival, 10_000)
	for i := range trace {
		trace[i] = sim.Arrival{At: time.Duration(i) * ms, Class: fmt.Sprint(i), CPU: ms}
	}
	require.Equal(t, trace, sim.Scale(trace, 1, 7))
	require.Empty(t, sim.Scale(nil, 2, 7))
	for _, times := range []float64{0.25, 1.5, 2, 3} {
		scaled := sim.Scale(trace, times, 7)
		require.InDelta(t, times*10_000, len(scaled), 200)
		require.Equal(t, scaled, sim.Scale(trace, times, 7), "the seed decides")
		kept := map[string]bool{}
		for i, a := range scaled {
			var n int
			_, err := fmt.Sscan(a.Class, &n)
			require.NoError(t, err)
			require.LessOrEqual(t, math.Abs(float64(a.At-trace[n].At)), float64(time.Second/2))
			kept[a.Class] = kept[a.Class] || a.At == trace[n].At
			require.True(t, i == 0 || a.At >= scaled[i-1].At, "in order")
		}
		if times >= 1 {
			require.Len(t, kept, 10_000)
			for class, original := range kept {
				require.True(t, original, "request %s stays where it was", class)
			}
		}
	}
	_, err := sim.Run(sim.Replay(sim.Scale(trace, 1.5, 7), sim.Machine{}), 1, bare)
	require.NoError(t, err, "it is a trace again")
}

func TestReplayOfWhatCannotBe(t *testing.T) {
	for want, trace := range map[string][]sim.Arrival{
		"there must be Classes and Phases": nil,
		"arrival 0: At must not be before": {{At: -1}, {At: 1}},
		"arrival 1: At must not be before": {{At: 2 * time.Second}, {At: time.Second}},
		"arrival 1: At must not be":        {{}, {At: math.MaxInt64}},
	} {
		_, err := sim.Run(sim.Replay(trace, sim.Machine{}), 1, bare)
		require.ErrorContains(t, err, want)
	}
	for _, times := range []float64{-1, math.NaN(), math.Inf(1)} {
		require.Panics(t, func() { sim.Scale([]sim.Arrival{{}}, times, 1) })
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add(traceHead + "1,a,2,3\n0.5,b,1,0\n")
	f.Add(traceHead + "1700000000.1,\"a\nb\",2,3\n")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := sim.ReadTrace(strings.NewReader(text))
		if err != nil {
			return
		}
		require.Zero(t, trace[0].At)
		for i, a := range trace {
			require.True(t, i == 0 || a.At >= trace[i-1].At)
			require.True(t, a.At < 24*time.Hour && a.CPU >= 0 && a.Wait >= 0)
		}
	})
}

const traceHead = "arrival_s,class,cpu_ms,wait_ms\n"

func ExampleReplay() {
	recorded := strings.NewReader(`arrival_s,class,cpu_ms,wait_ms
1700000000.250,search,12.5,0
1700000000.100,home,2,30
1700000001.900,home,2.5,28
`)
	trace, err := sim.ReadTrace(recorded)
	if err != nil {
		fmt.Println(err)
		return
	}
	yesterday := sim.Replay(trace, sim.Machine{Cores: 4})
	yesterday.Classes[1].Priority = -4 // search can wait
	twice := sim.Replay(sim.Scale(trace, 2, 1), sim.Machine{Cores: 4})
	for _, s := range []sim.Scenario{yesterday, twice} {
		result, err := sim.Run(s, 1, behindShedder)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d requests, %.0f %% refused\n", len(s.Trace), 100*result.Shed)
	}
	// Output:
	// 3 requests, 0 % refused
	// 6 requests, 0 % refused
}

func TestReadTraceSorts(t *testing.T) {
	trace, err := sim.ReadTrace(strings.NewReader(traceHead + "102.5,b,20,0\n100.25,a,10,50\n100.75,a,30,0.5\n"))
	require.NoError(t, err)
	require.Equal(t, []sim.Arrival{
		{At: 0, Class: "a", CPU: 10 * ms, Wait: 50 * ms}, {At: 500 * ms, Class: "a", CPU: 30 * ms, Wait: ms / 2},
		{At: 2250 * ms, Class: "b", CPU: 20 * ms},
	}, trace)
}

func TestTraceThatIsNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "the first line must be",
		"a,b\n":                              "the first line must be",
		traceHead:                            "no requests",
		traceHead + "1,a,2\n":                "wrong number of fields",
		traceHead + "1,a,-2,0\n":             `line 2: cpu_ms must be a number from 0 to 86400000, got "-2"`,
		traceHead + "1,a,2,1e300\n":          `line 2: wait_ms must be a number from 0 to 86400000, got "1e300"`,
		traceHead + "NaN,a,2,0\n":            `line 2: arrival_s must be a number from 0 to 6307200000, got "NaN"`,
		traceHead + "0,a,2,0\n86400,a,2,0\n": "shorter than a day",
	} {
		_, err := sim.ReadTrace(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}
