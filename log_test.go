package spillway_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/shadow"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

// book keeps what is written to it.
type book struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// written returns the lines since the last call, in the order of the alphabet.
func written(b *book) (lines []string) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		lines = append(lines, strings.TrimSpace(line))
	}
	b.text.Reset()
	slices.Sort(lines)
	return lines
}

// logger returns a logger into out, without times.
func logger(out *book) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// fail lets n requests enter and fail.
func fail(gate *spillway.Gate, n int) {
	for range n {
		if p, err := gate.Enter(context.Background(), spillway.Request{}); err == nil {
			p.Done(spillway.Failure)
		}
	}
}

func TestLogOfABreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := breaker.Options{Name: "db", Consecutive: 3, OpenFor: 3 * time.Second}
		brk := spillway.Must(breaker.New(&options))
		options.Name = "trial"
		trial := spillway.Must(breaker.New(&options))
		gate := spillway.New(shadow.New(trial), brk)
		var out book
		log := stats.NewLog(logger(&out), map[string]stats.Source{"api": gate})
		defer log.Close()
		time.Sleep(time.Second / 2)
		fail(gate, 3)
		fail(gate, 7)
		time.Sleep(time.Second)
		require.Equal(t, []string{
			`level=INFO msg="breaker: open" name=api policy=trial shadow=true reason="consecutive failures" failure=1 slow=0`,
			`level=WARN msg="breaker: open" name=api policy=db shadow=false reason="consecutive failures" failure=1 slow=0`,
		}, written(&out))
		fail(gate, 4)
		for range 12 {
			time.Sleep(time.Second)
			if p, err := gate.Enter(t.Context(), spillway.Request{}); err == nil {
				p.Done(spillway.Success)
			}
		}
		lines := written(&out)
		require.Len(t, lines, 2)
		require.Regexp(t, `^level=INFO msg="breaker: closed again" name=api policy=db shadow=false duration=[3-6]s refused=1[123]$`, lines[0])
		refused := brk.Stats().Refused
		require.Contains(t, lines[0], fmt.Sprintf("refused=%d", refused))

		time.Sleep(time.Minute)
		require.Empty(t, written(&out), "changes only")
		fail(gate, 3)
		time.Sleep(time.Minute)
		fail(gate, 1)
		lines = written(&out)
		require.Len(t, lines, 2, "an open breaker without calls stays open")
		require.NoError(t, log.Close())
		require.NoError(t, log.Close())
	})
}

// still is a sensor that always reads the same.
type still struct {
	usage float64
	err   error
}

func (s *still) Sample(now time.Time) stats.CPUSample {
	return stats.CPUSample{Usage: s.usage, Smoothed: s.usage, Limit: 2, Time: now, Samples: 1, Span: 250 * time.Millisecond, Err: s.err}
}

// waits is a sensor of the scheduler that always reads the same.
type waits time.Duration

func (w waits) Sample(now time.Time) stats.SchedSample {
	return stats.SchedSample{Value: time.Duration(w), Time: now}
}

func TestLogOfAShedder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cpu := &still{usage: 0.3}
		shed := spillway.Must(shedder.New(&shedder.Options{CPU: cpu, Sched: waits(0), CPUOnly: true}))
		gate := spillway.New(shed)
		var out book
		log := stats.NewLog(logger(&out), map[string]stats.Source{"api": gate})
		defer log.Close()
		run := func(d time.Duration) {
			for range d / (20 * time.Millisecond) {
				var permits []spillway.Permit
				for range 10 {
					if p, err := gate.Enter(t.Context(), spillway.Request{}); err == nil {
						permits = append(permits, p)
					}
				}
				time.Sleep(20 * time.Millisecond)
				for i := range permits {
					permits[i].Done(spillway.Success)
				}
			}
		}
		run(5 * time.Second)
		require.Empty(t, written(&out), "no sensor is down")
		for _, first := range []bool{true, false} {
			before := shed.Stats().Refused
			cpu.usage = 1
			run(10 * time.Second)
			lines := written(&out)
			require.Len(t, lines, 1, first)
			require.Regexp(t, `^level=WARN msg="shedder: overloaded" name=api policy=shedder shadow=false reason=cpu cpu=1 queue_delay=0s limit=\d+ in_flight=\d+$`,
				lines[0])
			cpu.usage = 0.3
			run(20 * time.Second)
			lines = written(&out)
			require.Len(t, lines, 1, first)
			require.Regexp(t, `^level=INFO msg="shedder: calm again" name=api policy=shedder shadow=false duration=\d+s refused=\d+$`, lines[0])
			require.Contains(t, lines[0], fmt.Sprintf("refused=%d", shed.Stats().Refused-before), "those of this overload")
		}
		cpu.err = os.ErrNotExist
		run(3 * time.Second)
		require.Equal(t, []string{`level=WARN msg="shedder: a sensor cannot be read" name=api policy=shedder shadow=false sensor=cpu`}, written(&out))
		time.Sleep(time.Minute)
		require.Empty(t, written(&out), "without requests, a sensor is not looked at")
		cpu.err = nil
		run(10 * time.Second)
		require.Contains(t, written(&out)[0], `msg="shedder: the sensor can be read again" name=api policy=shedder shadow=false sensor=cpu duration=`)
	})
}

func TestLogOfLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := spillway.Must(limiter.New(limiter.Bucket{Name: "rate", Rate: limiter.Per(1, time.Hour)}))
		limit := spillway.Must(adaptive.New(&adaptive.Options{Name: "calls", Initial: 2, Min: 1, Max: 2}))
		var out book
		log := stats.NewLog(logger(&out), map[string]stats.Source{"rate": bucket, "calls": limit})
		defer log.Close()
		for range 3 {
			bucket.Allow()
			_, _ = limit.Admit(t.Context(), spillway.Request{Arrived: time.Now()})
		}
		time.Sleep(3 * time.Second / 2)
		lines := written(&out)
		require.Len(t, lines, 1, "a rate limit that refuses is not trouble")
		require.Contains(t, lines[0], `level=WARN msg="adaptive: refuses" name=calls policy=calls shadow=false`)
		require.Contains(t, lines[0], `limit=2 in_flight=2`)
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{`level=INFO msg="adaptive: admits all again" name=calls policy=calls shadow=false duration=1s refused=1`}, written(&out))
	})
}

// A Var is an attribute, too.
func TestVarInALogLine(t *testing.T) {
	var out bytes.Buffer
	gate := spillway.New()
	slog.New(slog.NewJSONHandler(&out, nil)).Info("summary", "figures", stats.Var{"api": gate})
	require.Contains(t, out.String(), `"figures":{"api":[{"name":"spillway.gate.requests","labels":{"result":"admitted"},"value":0},`)
}
