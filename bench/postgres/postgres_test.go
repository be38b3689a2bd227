package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/lab/overload"
)

const ms = time.Millisecond

func TestQuantile(t *testing.T) {
	require.Nil(t, quantile(nil, 0.99))
	var d []time.Duration
	for i := 200; i > 0; i-- {
		d = append(d, time.Duration(i)*ms)
	}
	require.Equal(t, 198.0, *quantile(d, 0.99), "the nearest rank")
	require.Equal(t, 100.0, *quantile(d, 0.5))
	require.Equal(t, 1.0, *quantile(d, 0))
	require.Equal(t, 200.0, *quantile(d, 1))
	require.Equal(t, 200*ms, d[0], "the argument stays as it is")
}

func TestMedian(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 2.0, median([]float64{4, 1, 2, 3}), "of an even number, the lower")
	x := overload.Known[float64]
	require.Equal(t, 3.0, *medianOf([]*float64{nil, x(3), x(1)}), "a figure that is missing is the worst")
	require.Nil(t, medianOf([]*float64{nil, nil, x(1)}))
}

// every returns times at a constant rate in [from, to).
func every(step, from, to time.Duration) (times []time.Duration) {
	for t := from; t < to; t += step {
		times = append(times, t)
	}
	return times
}

func TestLongestDead(t *testing.T) {
	const rate = 100
	steady := every(10*ms, 0, 4*time.Second)
	require.Zero(t, longestDead(steady, 0, 4*time.Second, rate))

	// A hole of 600 ms: windows of 250 ms that begin at its edges lie in it, and so do those with one or two answers of
	// the 25 expected, which stick out by up to 20 ms, less than the grain.
	hole := append(every(10*ms, 0, time.Second), every(10*ms, 1600*ms, 4*time.Second)...)
	require.InDelta(t, 0.6, longestDead(hole, 0, 4*time.Second, rate), 0.051)
	require.InDelta(t, 0.35, longestDead(hole, 1250*ms, 4*time.Second, rate), 0.051, "only what lies behind the step counts")

	require.Zero(t, longestDead(append(every(10*ms, 0, time.Second), every(10*ms, 1200*ms, 4*time.Second)...), 0, 4*time.Second, rate),
		"less than a window is chance")

	trickle := append(every(10*ms, 0, time.Second), every(200*ms, time.Second, 2*time.Second)...)
	trickle = append(trickle, every(10*ms, 2*time.Second, 4*time.Second)...)
	require.InDelta(t, 1, longestDead(trickle, 0, 4*time.Second, rate), 0.051, "one answer in twenty is as good as none")

	two := append(every(10*ms, 0, time.Second), every(10*ms, 1500*ms, 2*time.Second)...)
	two = append(two, every(10*ms, 3*time.Second, 4*time.Second)...)
	require.InDelta(t, 1, longestDead(two, 0, 4*time.Second, rate), 0.051, "the longer of two")
	require.Equal(t, 4.0, longestDead(nil, 0, 4*time.Second, rate))
}

func TestUntilGood(t *testing.T) {
	const rate = 100
	steady := every(10*ms, 0, 6*time.Second)
	require.Zero(t, untilGood(steady, time.Second, 6*time.Second, rate))
	late := every(10*ms, 2500*ms, 6*time.Second)
	require.InDelta(t, 1.45, untilGood(late, time.Second, 6*time.Second, rate), 0.051, "the half second may begin with a tenth of silence")
	require.Zero(t, untilGood(every(11*ms, 0, 6*time.Second), time.Second, 6*time.Second, rate), "0.91 is enough")
	require.Equal(t, 5.0, untilGood(every(12*ms, 0, 6*time.Second), time.Second, 6*time.Second, rate), "0.83 is not, ever")
	require.Zero(t, untilGood(nil, 7*time.Second, 6*time.Second, rate))
}

func TestMeasure(t *testing.T) {
	var samples []sample
	add := func(n int, at, latency time.Duration, k kind) {
		for range n {
			samples = append(samples, sample{at: at, latency: latency, kind: k, lag: 3 * ms})
		}
	}
	add(50, 500*ms, 10*ms, answered) // before the step
	add(40, 1500*ms, 100*ms, answered)
	add(10, 1500*ms, 1001*ms, answered) // too late
	add(30, 2500*ms, 300*ms, answered)
	add(100, 2500*ms, 5*ms, refused)
	add(10, 2500*ms, 2*time.Second, timeout)
	add(5, 2500*ms, ms, failed)
	add(5, 2500*ms, 0, unsent)
	r := &result{SLO: 250}
	r.measure(samples, time.Second, 3*time.Second, 50)
	require.InDelta(t, 0.7, r.Goodput, 1e-9)
	require.InDelta(t, 0.6, r.GoodputLast, 1e-9)
	require.InDelta(t, 0.5, r.Refused, 1e-9)
	require.InDelta(t, 0.05, r.Timeouts, 1e-9)
	require.InDelta(t, 0.05, r.Failed, 1e-9)
	require.Equal(t, 1001.0, *r.P99, "late answers are answers")
	require.Equal(t, 100.0, *r.P50)
	require.Equal(t, 5.0, *r.RefusedP99)
	require.Equal(t, 3.0, r.LagP99)
	require.InDelta(t, 0.5, *r.WithinSLO, 1e-9)

	none := &result{}
	none.measure(nil, 0, time.Second, 50)
	require.Nil(t, none.P99)
	require.Nil(t, none.WithinSLO)
	require.Zero(t, none.Goodput)
}

func row(guard string, goodput, p99 float64) *result {
	return &result{Guard: guard, Goodput: goodput, P99: overload.Known(p99)}
}

func TestBestOfSweep(t *testing.T) {
	rows := []*result{
		row("fixed:2", 0.5, 10), row("fixed:8", 0.98, 90), row("fixed:16", 0.97, 80), row("fixed:32", 1, 200), row("fixed:64", 0.969, 20),
		row("spillway", 1.1, 5), {Guard: "fixed:128"},
	}
	most, lowest := best(fixedOf(rows))
	require.Equal(t, "fixed:32", most.Guard, "other guards do not count")
	require.Equal(t, "fixed:16", lowest.Guard, "the lowest p99 of those that keep 0.97 of the best")
	compare(rows)
	spillway := rows[5]
	require.InDelta(t, 1.1, *spillway.OfBest, 1e-9)
	require.InDelta(t, 5.0/80, *spillway.P99OfBest, 1e-9)
	require.Equal(t, "fixed:32", spillway.BestFixed)
	require.Equal(t, "fixed:16", spillway.P99Fixed)
	require.Nil(t, rows[6].P99OfBest)

	alone := []*result{row("spillway", 1, 5)}
	compare(alone)
	require.Nil(t, alone[0].OfBest)
	require.Nil(t, alone[0].P99OfBest)
	compare([]*result{row("fixed:1", 0, 5)}) // divides by nothing
}

func TestMerge(t *testing.T) {
	rows := merge([]*result{
		row("fixed:8", 0.5, 50), row("spillway", 0.9, 100), row("fixed:4", 0.4, 40),
		row("spillway", 0.7, 300), row("fixed:8", 0.6, 60), row("spillway", 0.8, 200),
	})
	require.Len(t, rows, 3)
	require.Equal(t, []string{"spillway", "fixed:4", "fixed:8"}, []string{rows[0].Guard, rows[1].Guard, rows[2].Guard})
	require.Equal(t, 0.8, rows[0].Goodput)
	require.Equal(t, 200.0, *rows[0].P99)
	require.Equal(t, []float64{0.9, 0.7, 0.8}, rows[0].Passes)
}

func TestMix(t *testing.T) {
	m, err := findMix("mixed")
	require.NoError(t, err)
	for x, want := range map[float64]int{0: 0, 0.69: 0, 0.71: 1, 0.89: 1, 0.91: 2, 0.9999: 2, 1: 2} {
		require.Equal(t, want, m.pick(x), x)
	}
	dear, err := findMix("dear")
	require.NoError(t, err)
	require.Equal(t, 2, dear.pick(0))
	for _, m := range mixes() {
		require.Len(t, m.shares, len(routes()))
	}
	_, err = findMix("x")
	require.ErrorContains(t, err, `no mix "x"`)
}

func TestSchedule(t *testing.T) {
	m, err := findMix("mixed")
	require.NoError(t, err)
	requests := schedule(rand.New(rand.NewPCG(1, 1)), m, 1000, 2*time.Second, 12*time.Second)
	require.InDelta(t, 10_000, len(requests), 400)
	var routes [3]float64
	for i, s := range requests {
		require.GreaterOrEqual(t, s.at, 2*time.Second)
		require.Less(t, s.at, 12*time.Second)
		require.True(t, i == 0 || s.at >= requests[i-1].at)
		routes[s.route]++
	}
	require.InDelta(t, len(requests)/10, routes[2], 1, "drawn one by one, the share would be good to 30 in 1000")
}

func TestTheClosedLoopKeepsTheShares(t *testing.T) {
	m, err := findMix("mixed")
	require.NoError(t, err)
	for first := int64(1); first < 10_000; first += 37 {
		var routes [3]float64
		for n := first; n < first+100; n++ {
			routes[m.nth(n)]++
		}
		require.InDeltaSlice(t, []float64{70, 20, 10}, routes[:], 2)
	}
}

func TestClients(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(map[string]int{"/one": http.StatusOK, "/page": http.StatusTooManyRequests, "/sum": http.StatusInternalServerError}[r.URL.Path])
	}))
	defer srv.Close()
	c := newClients(strings.TrimPrefix(srv.URL, "http://"))
	defer c.close()
	requests := c.run(t.Context(), time.Now(), []sample{{route: 0}, {route: 1}, {route: 2}})
	require.Equal(t, []kind{answered, refused, failed}, []kind{requests[0].kind, requests[1].kind, requests[2].kind})

	gone := c.run(t.Context(), time.Now().Add(-2*deadline), []sample{{route: 0}})
	require.Equal(t, timeout, gone[0].kind, "the deadline counts from the intended send time")
	require.GreaterOrEqual(t, gone[0].latency, 2*deadline)
	require.False(t, gone[0].useful())

	c.open.Store(maxOpen)
	require.Equal(t, unsent, c.run(t.Context(), time.Now(), []sample{{route: 0}})[0].kind)
}

func TestGuards(t *testing.T) {
	for name, shedders := range map[string][]string{
		"none": nil, "fixed:3": {""}, "throttle:3": nil, "spillway": {""}, withSLO: {""}, perRoute: {"one", "page", "sum"}, "failsafe": {""},
	} {
		h, all, err := newApp(name, time.Second, nil)
		require.NoError(t, err, name)
		require.NotNil(t, h, name)
		var names []string
		for _, route := range []string{"", "one", "page", "sum"} {
			if all[route] != nil {
				names = append(names, route)
			}
		}
		require.Equal(t, shedders, names, name)
	}
	for _, name := range []string{"nobody", "throttle:0", "throttle:x", "fixed:0"} {
		_, _, err := newApp(name, 0, nil)
		require.ErrorContains(t, err, name)
	}
}

func TestParse(t *testing.T) {
	s, err := parse(nil, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, []float64{0.9, 1.1, 2, 5}, s.loads)
	require.Equal(t, []string{"", coldStart, "stop", "restart", "lock"}, s.faults)
	require.Equal(t, []int{2, 4, 8, 16, 32, 64, 128}, s.sweep)

	s, err = parse([]string{"-sweep", "none", "-slo", "250", "-faults", "none", "-mixes", "dear"}, &bytes.Buffer{})
	require.NoError(t, err)
	require.Empty(t, s.sweep)
	require.Equal(t, 250*ms, s.slo)

	for _, wrong := range []struct{ flag, value, field string }{
		{"-guards", "nobody", `-guards: no guard "nobody"`},
		{"-mixes", "x", `-mixes: no mix "x"`},
		{"-loads", "0", "-loads"},
		{"-loads", "NaN", "-loads"},
		{"-loads", "two", "-loads"},
		{"-faultloads", "99", "-faultloads"},
		{"-coldload", "-1", "-coldload"},
		{"-faults", "fire", `-faults: no fault "fire"`},
		{"-sweep", "0", "-sweep"},
		{"-sweep", "none", "-slo"},
		{"-passes", "0", "-passes"},
		{"-seconds", "0.5", "-seconds"},
		{"-seconds", "NaN", "-seconds"},
		{"-settle", "-1", "-settle"},
		{"-slo", "-1", "-slo"},
		{"-quota", "0", "-quota"},
		{"-dbquota", "NaN", "-dbquota"},
	} {
		_, err := parse([]string{wrong.flag, wrong.value}, &bytes.Buffer{})
		require.ErrorContains(t, err, wrong.field, "%s %s", wrong.flag, wrong.value)
	}
	_, err = parse([]string{"more"}, &bytes.Buffer{})
	require.ErrorContains(t, err, `unexpected argument "more"`)

	var help bytes.Buffer
	_, err = parse([]string{"-h"}, &help)
	require.ErrorIs(t, err, flag.ErrHelp)
	require.Contains(t, help.String(), "useful\nwithin 1s; after 2s the client gives up")
	require.Zero(t, exit(err))
}

// planned returns a session that has measured nothing yet.
func planned(t *testing.T, args ...string) *session {
	s, err := parse(args, &bytes.Buffer{})
	require.NoError(t, err)
	return &session{rig: &rig{settings: s}, all: map[place][]*result{}, slos: map[place]time.Duration{}}
}

func TestPlaces(t *testing.T) {
	s := planned(t, "-faults", "lock,none,cold", "-loads", "1.1,5", "-faultloads", "2")
	m, err := findMix("mixed")
	require.NoError(t, err)
	require.Equal(t, []place{{"mixed", 1.1, ""}, {"mixed", 5, ""}, {"mixed", 2, "lock"}, {"mixed", 3, coldStart}}, s.places(m))
}

func TestGuardsOfAPlace(t *testing.T) {
	s := planned(t, "-guards", "spillway,fixed:8,spillway-slo", "-sweep", "8,16")
	step := place{"mixed", 2, ""}
	require.Equal(t, []string{"spillway", "fixed:8", "fixed:16"}, s.guardsAt(step), "the sweep, and the objective comes later")
	lock := place{"mixed", 1.8, "lock"}
	require.Equal(t, []string{"spillway", "fixed:8"}, s.guardsAt(lock), "nothing is known of limits")
	require.Zero(t, s.sloAt(lock))

	far := place{"mixed", 5, ""}
	s.order = []place{far, step, {"dear", 1.8, ""}, {"mixed", 1.8, "lock"}, {"mixed", 1.9, coldStart}}
	s.all[far] = []*result{row("fixed:4", 1, 400)}
	s.all[step] = []*result{row("fixed:8", 0.5, 50), row("fixed:16", 1, 100)}
	require.Equal(t, []string{"spillway", "fixed:8", "fixed:16"}, s.guardsAt(lock), "the best of the nearest step")
	require.Equal(t, 200*ms, s.sloAt(lock), "twice its p99")
	s.all[step] = []*result{row("fixed:16", 1, 300)}
	require.Equal(t, 200*ms, s.sloAt(step), "the objective stays")
	s.slo = time.Second
	require.Equal(t, time.Second, s.sloAt(step))
}

func TestTrace(t *testing.T) {
	var nothing *trace
	require.NoError(t, nothing.write(cell{}, time.Time{}, 0, 0, nil, nil))
	require.NoError(t, nothing.close())

	name := filepath.Join(t.TempDir(), "trace.csv")
	tr, err := openTrace(name)
	require.NoError(t, err)
	tr.pass = 1
	base := time.Unix(100, 0)
	samples := []sample{
		{at: 10 * ms, latency: 150 * ms, kind: answered}, {at: 110 * ms, latency: ms, kind: refused}, {at: 120 * ms, latency: deadline, kind: timeout},
	}
	view := overload.View{Limit: overload.Known(7.0), Refused: overload.Known(int64(3)), Reason: "full", Extra: map[string]float64{"b": 2, "a": 1}}
	seen := []glimpse{
		{UnixNano: base.Add(-ms).UnixNano(), Views: map[string]overload.View{"": view}}, // before the load
		{UnixNano: base.Add(150 * ms).UnixNano(), Views: map[string]overload.View{"sum": {}, "one": view}},
	}
	require.NoError(t, tr.write(cell{guard: "spillway", mix: mix{name: "dear"}, load: 2, fault: "lock"}, base, 50*ms, time.Second, samples, seen))
	require.NoError(t, tr.close())
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, `pass,guard,mix,load,fault,time_s,shedder,limit,in_flight,reason,refused,served,cpu,cpu_smooth,extra,sent,useful,refusals,timeouts,failures
1,spillway,dear,2,lock,0.1,one,7.0,,full,3,,,,a=1 b=2,2,1,1,0,0
1,spillway,dear,2,lock,0.1,sum,,,,,,,,,2,1,1,0,0
`, string(text))
}

func TestFigures(t *testing.T) {
	r := row("spillway", 0.98, 400)
	r.Mix, r.Load, r.Fault = "mixed", 2, coldStart
	f := &figures{Loads: []load{usual([]load{{Mix: "mixed", Capacity: 300}, {Capacity: 100}, {Capacity: 200}})}, Results: []*result{r}}
	require.Equal(t, 200.0, f.Loads[0].Capacity)
	var out bytes.Buffer
	require.NoError(t, f.print(&out))
	require.Contains(t, out.String(), "mixed: 200 requests per second")
	require.Regexp(t, `mixed +2 +cold start +spillway +0\.98 +- `, out.String())

	data, err := json.Marshal(f)
	require.NoError(t, err)
	var got struct {
		Results []map[string]any `json:"results"`
	}
	require.NoError(t, json.Unmarshal(data, &got))
	for field, want := range map[string]any{
		"guard": "spillway", "mix": "mixed", "load": 2.0, "goodput": 0.98, "of_best": nil, "p99_ms": 400.0, "p99_of_best": nil, "refused": 0.0,
		"dead_s": 0.0, "fault": "cold start",
	} {
		require.Contains(t, got.Results[0], field)
		require.Equal(t, want, got.Results[0][field], field)
	}
}

func TestExit(t *testing.T) {
	require.Zero(t, exit(nil))
	require.Equal(t, 1, exit(errors.New("no luck")))
}
