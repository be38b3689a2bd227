package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/bench/internal/race"
)

// play runs the program and returns what it wrote to its file.
func play(t *testing.T, args ...string) (r report, fields map[string]any) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "soak.json")
	var out bytes.Buffer
	err := run(t.Context(), append(args, "-json", file), &out)
	require.NoError(t, err, out.String())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &r))
	require.NoError(t, json.Unmarshal(text, &fields))
	t.Log(out.String())
	return r, fields
}

func TestVirtual(t *testing.T) {
	hours := 0.2
	if race.Enabled {
		hours = 0.02 // it takes ten times as long
	}
	r, fields := play(t, "-virtual", "-hours", fmt.Sprint(hours))
	require.InDelta(t, hours, r.VirtualHours, 1e-9)
	require.Greater(t, r.Requests, int64(hours*50_000))
	for _, name := range []string{"virtual_hours", "violations", "leaked", "heap_growth", "requests"} {
		require.Contains(t, fields, name)
	}
	require.NotContains(t, fields, "real_minutes")
}

func TestReal(t *testing.T) {
	r, _ := play(t, "-real", "-minutes", "0.05")
	require.Zero(t, r.VirtualHours)
	require.GreaterOrEqual(t, r.RealMinutes, 0.05)
	require.Positive(t, r.Requests)
}

// A changed policy does something that it should not.
type changed struct {
	spillway.Policy
	admit func() (handled bool, err error)
	done  func() (lost bool)
}

func (c *changed) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	if c.admit != nil {
		if handled, err := c.admit(); handled {
			return 0, err
		}
	}
	return c.Policy.Admit(ctx, r)
}

func (c *changed) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if c.done == nil || !c.done() {
		c.Policy.Done(r, t, res)
	}
}

// change changes the policy of a probe.
func (w *world) change(name string, c changed) {
	for _, p := range w.probes {
		if p.name == name {
			c.Policy, p.Policy = p.Policy, &c
		}
	}
}

// oneIn is true once in n times.
func oneIn(n int) func() bool {
	i := 0
	return func() bool { i++; return i%n == 0 }
}

// Each check of the virtual form finds what it is for.
func TestVirtualChecksCanFail(t *testing.T) {
	if race.Enabled {
		t.Skip("the same without the race detector, ten times faster")
	}
	blocked := make(chan struct{})
	defer close(blocked)
	var kept [][]byte
	unbounded := []string{"sliding window", "sliding log", "fixed window", "policer", "keyed window", "xtime", "registry"}
	loses := func(name string) func(*world) {
		return func(w *world) { w.change(name, changed{done: oneIn(500)}) }
	}
	for _, c := range []struct {
		name, says string
		sabotage   func(*world)
	}{
		{"a concurrency that loses places", "concurrency: places taken", loses("concurrency")},
		{"a shedder that loses requests", "shedder: in flight", loses("shedder")},
		{"a throttle that loses requests", "throttle: in flight", loses("throttle")},
		{"a queue that loses places", "queue: places taken", loses("queue")},
		{"limits without a bound", "", func(w *world) {
			w.surge = 10
			for _, name := range unbounded {
				w.change(name, changed{admit: func() (bool, error) { return true, nil }})
			}
		}},
		{"refusals that are not counted", "sliding log: refused", func(w *world) {
			now := oneIn(100)
			w.change("sliding log", changed{admit: func() (bool, error) { return now(), errWhim }})
		}},
		{"a permit that is never ended", "in flight expected at the end", func(w *world) {
			w.after(time.Minute, func() { _ = w.gates[gateRates].enter(context.Background(), spillway.Request{Arrived: w.time()}) })
		}},
		{"goroutines that stay", "goroutines:", func(w *world) {
			w.after(time.Minute, func() {
				for range 3 {
					go func() { <-blocked }()
				}
			})
		}},
		{"a heap that grows", "heap: at most", func(w *world) {
			w.every(time.Minute, func() { kept = append(kept, make([]byte, 1<<20)) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := []string{c.says}
			if c.says == "" {
				all = all[:0]
				for _, name := range unbounded {
					all = append(all, name+strings.Repeat(" tenant-0", strings.Count(name, "keyed"))+": at most")
				}
			}
			var out bytes.Buffer
			w, err := newWorld(1, &out)
			require.NoError(t, err)
			c.sabotage(w)
			length := 2 * time.Minute
			if c.name == "a heap that grows" {
				length = 10 * time.Minute // there must be enough samples
			}
			r := w.play(length)
			for _, says := range all {
				require.Contains(t, out.String(), says)
			}
			require.Contains(t, out.String(), "seed 1")
			require.Positive(t, r.Violations)
			require.ErrorIs(t, finish(r, "", &out), errFound, "so the program exits with 1")
		})
	}
	require.NotNil(t, kept)
}

// So does each of the real form.
func TestRealChecksCanFail(t *testing.T) {
	blocked := make(chan struct{})
	defer close(blocked)
	var files [10]*os.File // more than the rehearsal may still be closing
	var out bytes.Buffer
	l := &liveRun{seed: 1, out: &out, settle: 500 * time.Millisecond, sabotage: func(l *liveRun) {
		_, err := l.gate.Enter(t.Context(), spillway.Request{})
		require.NoError(t, err)
		for i := range files {
			go func() { <-blocked }()
			files[i], err = os.Open(os.DevNull)
			require.NoError(t, err)
		}
	}}
	r, err := l.run(t.Context(), time.Second)
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, f.Close())
	}
	for _, says := range []string{"requests in flight: 0 expected, there are 1", "goroutines:", "open files:", "gate: admitted"} {
		require.Contains(t, out.String(), says)
	}
	require.GreaterOrEqual(t, r.Leaked, int64(3))
	require.ErrorIs(t, finish(r, "", &out), errFound)
}

func TestSteppedClock(t *testing.T) {
	c, err := newClock(startAt)
	require.NoError(t, err)
	before := c.time()
	require.True(t, before.Equal(startAt))
	for _, d := range []time.Duration{time.Hour, -48 * time.Hour, 0} {
		c.skew = d
		require.Equal(t, d.Seconds(), float64(c.time().Unix()-before.Unix()), "by the wall clock")
		require.Zero(t, c.time().Sub(before), "by the monotonic clock")
	}
}

// A seed gives the same requests and troubles. What limits decide differs a little: their clocks begin when they are made.
func TestSameSeedSameRun(t *testing.T) {
	runOf := func(seed uint64) (arrivals []time.Duration, tuned int) {
		w, err := newWorld(seed, io.Discard)
		require.NoError(t, err)
		w.asks = []func(*rand.Rand){func(*rand.Rand) { arrivals = append(arrivals, w.now) }}
		w.play(time.Minute)
		return arrivals, w.tuned
	}
	one, tunedOne := runOf(3)
	two, tunedTwo := runOf(3)
	require.Equal(t, one, two)
	require.Equal(t, tunedOne, tunedTwo)
	other, _ := runOf(4)
	require.NotEqual(t, one, other)
}

func TestUsage(t *testing.T) {
	for args, says := range map[string]string{
		"":                                "either -virtual or -real is needed",
		"-virtual -real":                  "either -virtual or -real is needed",
		"-virtual -hours 0":               "-hours must be 0.01 to 1000, got 0",
		"-virtual -hours NaN":             "-hours must be 0.01 to 1000, got NaN",
		"-real -minutes -1":               "-minutes must be 0.01 to 1000, got -1",
		"-virtual -hours 0.01 -json /x/y": "no such file",
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), strings.Fields(args), &out), says, args)
	}
	var out bytes.Buffer
	require.Error(t, run(t.Context(), []string{"-h"}, &out))
	require.Contains(t, out.String(), "exits with 1")
}
