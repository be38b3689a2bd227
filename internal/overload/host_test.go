package overload

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
)

// A rig is a client at a time of its own.
type rig struct {
	all  *Hosts
	host *Host
	now  time.Time
}

func newRig() *rig {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	all := NewHosts([]string{"a", "b"}, now)
	return &rig{all: all, host: all.Of("a"), now: now}
}

// hears takes in an answer that was not refused.
func (r *rig) hears(text string) {
	r.host.Answered(spillway.Critical, []string{text}, spillway.Success, r.now)
}

func advise(level int, reduce float64, valid, seq int, src string) string {
	return fmt.Sprintf("level=%d, reduce=%g, valid=%d, seq=%d, src=%q", level, reduce, valid, seq, src)
}

// sends returns the share of 10000 requests within the given time that are sent.
func (r *rig) sends(p spillway.Priority, over time.Duration) float64 {
	const n = 10_000
	sent := 0
	for range n {
		if r.host.Refuses(p, r.now) == nil {
			sent++
		}
		r.now = r.now.Add(over / n)
	}
	return float64(sent) / n
}

func TestHoldsBackByLevel(t *testing.T) {
	r := newRig()
	require.InDelta(t, 1, r.sends(spillway.Sheddable, time.Second), 0)
	r.hears(advise(0, 0.4, 10_000, 1, "x"))
	require.InDelta(t, 1, r.sends(spillway.Critical, time.Second), 0)
	require.InDelta(t, 1, r.sends(1, time.Second), 0)
	require.InDelta(t, 0.6, r.sends(spillway.Normal, time.Second), 0.03)
	require.InDelta(t, 0, r.sends(-1, time.Second), 0.001, "all but the probes")
	require.InDelta(t, 1, rig{host: r.all.Of("b"), now: r.now}.share(), 0, "another host")
	require.Nil(t, r.all.Of("c"))
	require.Nil(t, r.all.Of("c").Refuses(0, r.now))
	require.Positive(t, r.all.HeldBack())
	require.Zero(t, r.all.Throttled())
}

func (r rig) share() float64 { return r.sends(spillway.Sheddable, time.Second) }

func TestOneProbeASecond(t *testing.T) {
	r := newRig()
	r.hears(advise(4, 0.9, 10_000, 1, "x"))
	var sent []time.Duration
	for at := time.Duration(0); at < 9*time.Second; at += 10 * time.Millisecond {
		if rej := r.host.Refuses(spillway.Normal, r.now.Add(at)); rej == nil {
			sent = append(sent, at)
		} else {
			require.Equal(t, &spillway.Rejection{Policy: "overload", Reason: "held back", RetryAfter: time.Second}, rej)
		}
	}
	require.Len(t, sent, 9)
	for i, at := range sent {
		require.InDelta(t, float64(i), at.Seconds(), 0.1)
	}
}

// What a server says ends by itself, even if it lies about how long it holds.
func TestAdviceEnds(t *testing.T) {
	for valid, until := range map[int]time.Duration{0: 0, 2000: 2 * time.Second, 10_000: 10 * time.Second, 1e9: 10 * time.Second} {
		r := newRig()
		start := r.now
		r.hears(advise(9, 1, valid, 1, "x"))
		if until > 0 {
			require.Less(t, r.sends(spillway.Normal, until-time.Millisecond), 0.01)
		}
		r.now = start.Add(until)
		require.InDelta(t, 1, r.sends(spillway.Normal, time.Second), 0)
	}
}

// At most 0.95 of a level is held back.
func TestLiesAreBounded(t *testing.T) {
	r := newRig()
	r.hears(advise(0, 1, 999_999_999, 1, "x"))
	require.InDelta(t, 0.05, r.sends(spillway.Normal, 5*time.Second), 0.01)
}

func TestLateAnswersDoNotCount(t *testing.T) {
	r := newRig()
	r.hears(advise(0, 0.9, 5000, 7, "x"))
	r.hears(advise(0, 0, 10_000, 8, "x"))
	r.hears(advise(0, 0.9, 5000, 7, "x"))
	r.hears(advise(0, 0.9, 5000, 8, "x"))
	require.InDelta(t, 1, r.sends(spillway.Normal, time.Second), 0)
	r.hears(advise(0, 0.5, 5000, 9, "x"))
	require.InDelta(t, 0.5, r.sends(spillway.Normal, time.Second), 0.03)
	r.now = r.now.Add(20 * time.Second)
	r.hears(advise(0, 0.9, 5000, 9, "x"))
	require.InDelta(t, 1, r.sends(spillway.Normal, time.Second), 0, "not even when nothing is valid")
	r.now = r.now.Add(time.Minute)
	r.hears(advise(0, 0.5, 5000, 1, "x"))
	require.InDelta(t, 0.5, r.sends(spillway.Normal, time.Second), 0.03, "a sequence does not bind for good")
}

// The same text again does not extend its validity.
func TestRepeatsDoNotExtend(t *testing.T) {
	r := newRig()
	for range 30 {
		r.hears(advise(0, 0.9, 2000, 7, "x"))
		r.now = r.now.Add(100 * time.Millisecond)
	}
	require.InDelta(t, 1, r.sends(spillway.Normal, time.Second), 0)
}

// Behind a balancer, any process may get the next request.
func TestProcessesBehindOneHost(t *testing.T) {
	r := newRig()
	r.hears(advise(0, 0.8, 10_000, 100, "x"))
	r.hears(advise(0, 0, 10_000, 3, "y"))
	require.InDelta(t, 0.6, r.sends(spillway.Normal, time.Second), 0.03, "half of them hold back 0.8")
	r.hears(advise(-4, 0.5, 10_000, 1, "z"))
	r.hears(advise(4, 0.5, 10_000, 1, "w"))
	require.InDelta(t, 1-1.8/4, r.sends(spillway.Normal, time.Second), 0.03)
	r.hears(advise(0, 0, 10_000, 101, "x"))
	r.hears(advise(0, 0, 10_000, 2, "w"))
	require.InDelta(t, 1, r.sends(spillway.Normal, time.Second), 0)
}

// A server that names a new process in each answer gets no memory for it, and cannot hold back longer.
func TestManyProcesses(t *testing.T) {
	r := newRig()
	for i := range 5000 {
		r.hears(advise(0, 0.9, 10_000, i, fmt.Sprint("src-", i)))
	}
	require.Len(t, *r.host.sources.Load(), maxSources)
	require.InDelta(t, 0.1, r.sends(spillway.Normal, 5*time.Second), 0.02)
	r.now = r.now.Add(5 * time.Second)
	require.InDelta(t, 1, r.sends(spillway.Normal, time.Second), 0)
}

// Fields that are not exactly one valid dictionary change nothing.
func TestGarbageChangesNothing(t *testing.T) {
	r := newRig()
	for _, field := range [][]string{
		nil, {}, {""}, {"level=0"}, {strings.Repeat("x", 1<<20)}, {advise(9, 0.9, 10_000, 1, "x"), advise(9, 0.9, 10_000, 2, "x")},
		{advise(9, 0.9, 10_000, 1, "x") + ";a"}, {"\x00"}, {`level=9, reduce=0.9, valid=1e4, seq=1, src="x"`},
	} {
		r.host.Answered(spillway.Normal, field, spillway.Success, r.now)
	}
	require.Nil(t, r.host.sources.Load())
	require.InDelta(t, 1, r.sends(spillway.Sheddable, time.Second), 0)
}

// A clock that jumps ends what holds, at worst; it never extends it beyond its time.
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, -time.Second, time.Hour, 24 * 365 * time.Hour} {
		r := newRig()
		start := r.now
		r.now = r.now.Add(time.Minute)
		r.hears(advise(9, 0.9, 10_000, 1, "x"))
		for range 100 {
			r.host.Answered(spillway.Normal, nil, spillway.Dropped, r.now)
		}
		require.Nil(t, r.refusal(), "a probe")
		require.NotNil(t, r.refusal())
		r.now = r.now.Add(jump)
		if jump < -time.Minute {
			r.now = start
		}
		began, held := r.now, 0
		for range 12_000 {
			if r.refusal() != nil {
				held++
			}
			r.now = r.now.Add(time.Millisecond)
		}
		require.LessOrEqual(t, held, 10_000, "jump of %v", jump)
		require.Nil(t, r.refusal(), "jump of %v: held back for %v", jump, r.now.Sub(began))
	}
}

func (r *rig) refusal() *spillway.Rejection { return r.host.Refuses(spillway.Normal, r.now) }

// A server that says nothing and refuses is sent 1.4 times what it accepts.
func TestThrottle(t *testing.T) {
	for _, load := range []float64{0.5, 1, 2, 10, 50} {
		r := newRig()
		const capacity, seconds = 100, 60
		rng := rand.New(rand.NewPCG(1, 2))
		sent, accepted, tokens := 0, 0, 0.0
		for range int(load * capacity * seconds) {
			gap := rng.ExpFloat64() / (load * capacity)
			r.now = r.now.Add(time.Duration(gap * 1e9))
			tokens = min(tokens+gap*capacity, 10)
			if r.refusal() != nil {
				continue
			}
			sent++
			if tokens < 1 {
				r.host.Answered(spillway.Normal, nil, spillway.Dropped, r.now)
				continue
			}
			tokens--
			accepted++
			r.host.Answered(spillway.Normal, nil, spillway.Success, r.now)
		}
		t.Logf("%4gx: sent %.3f, accepted %.3f of the capacity", load, float64(sent)/capacity/seconds, float64(accepted)/capacity/seconds)
		require.LessOrEqual(t, sent, int(1.55*capacity*seconds))
		require.GreaterOrEqual(t, float64(accepted), 0.93*min(load, 1)*capacity*seconds)
		require.InDelta(t, 1, r.sends(spillway.Critical, time.Second), 0, "other priorities are not affected")
	}
}

// A server that refuses everything gets a probe a second, and everything again soon after it recovers.
func TestThrottleRecovers(t *testing.T) {
	r := newRig()
	refuse := true
	run := func(over time.Duration) (sent int) {
		for range int(over / time.Millisecond) {
			if r.refusal() == nil {
				sent++
				o := spillway.Success
				if refuse {
					o = spillway.Dropped
				}
				r.host.Answered(spillway.Normal, nil, o, r.now)
			}
			r.now = r.now.Add(time.Millisecond)
		}
		return sent
	}
	run(time.Second)
	require.InDelta(t, 10, run(10*time.Second), 3, "probes, and few others")
	refuse = false
	run(5 * time.Second)
	require.Equal(t, 1000, run(time.Second))
}

func TestRefusalsAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	r := newRig()
	r.hears(advise(9, 0.9, 10_000, 1, "x"))
	old := []string{advise(9, 0.9, 10_000, 0, "x")}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		r.host.Refuses(spillway.Normal, r.now)
		r.host.Refuses(10, r.now)
		r.host.Answered(spillway.Normal, old, spillway.Dropped, r.now)
		r.host.Answered(spillway.Normal, nil, spillway.Success, r.now)
	}))
}

// Many goroutines ask and hear at once; the newest advice of each process is in force at the end.
func TestConcurrentAnswers(t *testing.T) {
	r := newRig()
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 2000 {
				r.host.Answered(spillway.Normal, []string{advise(0, 0.5, 10_000, i, fmt.Sprint("src-", (g+i)%3))}, spillway.Outcome(i%4), r.now)
				r.host.Refuses(spillway.Priority(i%3-1), r.now.Add(time.Duration(i)*time.Microsecond))
			}
		})
	}
	all.Wait()
	require.Len(t, *r.host.sources.Load(), 3)
	for _, s := range *r.host.sources.Load() {
		require.GreaterOrEqual(t, s.Seq, int64(1997))
	}
}
