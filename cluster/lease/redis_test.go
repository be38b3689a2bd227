package lease

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/cluster/lease/internal/machine"
)

// steadyFor is how long a limit is watched that is used to twice its size: longer by SPILLWAY_QUOTA_SECONDS.
func steadyFor() time.Duration {
	if n, err := strconv.Atoi(os.Getenv("SPILLWAY_QUOTA_SECONDS")); err == nil {
		return time.Duration(n) * time.Second
	}
	return time.Second
}

// Nodes on a real Redis want twice the limit, unevenly: they use it up, and share it fairly. The bounds leave room for what a
// busy machine does to a load generator.
func TestLimitSharesFairly(t *testing.T) {
	const rate = 2000
	s := redistest.Start(t)
	for _, n := range []int{2, 32} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			inSomeAttempt(t, func(t *testing.T, c *complaints) { sharesFairly(t, c, s, n, rate) })
		})
	}
}

func sharesFairly(t *testing.T, c *complaints, s *redistest.Server, n int, rate float64) {
	t.Helper()
	f := &quotaFleet{t: t, rate: rate, burst: rate / 5}
	for _, d := range skewedDemand(n, 2*rate) {
		f.join(steadyOptions(clientOf(t, s.Addr()), int(rate)), d)
	}
	const warm = 700 * time.Millisecond
	f.run(warm)
	d := steadyFor()
	got := f.run(d)
	t.Logf("%d nodes for %v: %+.2f %% of the limit, jain %.4f, worst 100 ms %+.0f %%",
		n, d, 100*(total(got)/rate-1), jain(got, f.shares()), 100*(f.worst()/(rate/10)-1))
	assert.LessOrEqual(c, total(got), rate+(f.burst+float64(n))/d.Seconds())
	assert.LessOrEqual(c, f.worst(), rate/10+f.burst+float64(n))
	assert.GreaterOrEqual(c, total(got), 0.7*rate)
	assert.Greater(c, jain(got, f.shares()), 0.95)
	for _, q := range f.quotas {
		require.LessOrEqual(t, q.Stats().Syncs, int64(4*(d+warm)/defaultInterval), "at most one every 50 ms")
		q.Close()
	}
	require.Empty(t, entriesOf(t, s), "closing gives all back")
}

// entriesOf returns the nodes that Redis knows of.
func entriesOf(t *testing.T, s *redistest.Server) []string {
	t.Helper()
	fields, err := s.Client().HKeys(t.Context(), "spillway:{quota:k}:lease").Result()
	require.NoError(t, err)
	var out []string
	for _, f := range fields {
		if f != "m" {
			out = append(out, f)
		}
	}
	return out
}

// A hurt is what happens to Redis or to the way there, and how it ends.
type hurt struct {
	name    string
	forgets bool // Redis has lost its memory
	begin   func()
	end     func()
}

// quotaStacks returns what all goroutines are doing.
func quotaStacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

func TestLimitSurvives(t *testing.T) {
	const rate = 2000
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	f := &quotaFleet{t: t, rate: rate, burst: rate / 5}
	for _, d := range skewedDemand(4, 2*rate) {
		o := steadyOptions(clientOf(t, p.Addr()), rate)
		o.Interval = 100 * time.Millisecond
		f.join(o, d)
	}
	f.run(600 * time.Millisecond)
	goroutines := runtime.NumGoroutine()
	for _, h := range []hurt{
		{name: "FLUSHALL, and scripts and connections too", forgets: true, begin: func() { s.Do("FLUSHALL"); s.Do("SCRIPT", "FLUSH"); p.Reset() }, end: p.Reset},
		{name: "200 ms", begin: func() { p.SetLatency(200 * time.Millisecond) }, end: p.Heal},
		{name: "black hole", begin: func() { p.BlackHole(true) }, end: p.Heal},
		{name: "half of the replies lost", begin: func() { p.DropReplies(0.5) }, end: p.Heal},
		{name: "SIGSTOP", begin: s.Pause, end: s.Resume},
		{name: "killed, and back empty", forgets: true, begin: s.Kill, end: s.Restart},
	} {
		f.survives(h, goroutines)
	}
}

// survives hurts the fleet once, or some more times while a busy machine does so too.
func (f *quotaFleet) survives(h hurt, goroutines int) {
	t := f.t
	t.Helper()
	const during, after = 400 * time.Millisecond, 300 * time.Millisecond
	for attempt := 1; ; attempt++ {
		var c complaints
		h.begin()
		sum := total(f.run(during)) * during.Seconds()
		require.Equal(t, len(f.quotas), strings.Count(quotaStacks(), "(*loop).run("), "%s: one goroutine each", h.name)
		h.end()
		sum += total(f.run(after)) * after.Seconds()
		// A connection that is mute keeps one goroutine here and five in the proxy, until the client gives it up.
		require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+80, "%s: goroutines pile up", h.name)
		require.LessOrEqual(t, strings.Count(quotaStacks(), "(*flight).run.func"), 16, h.name)
		part := sum / f.rate / (during + after).Seconds()
		assert.GreaterOrEqual(&c, part, 0.7, h.name)
		most := f.rate*(during+after).Seconds() + f.burst + 5
		if h.forgets { // who has no lease yet may take a twentieth of all
			most += machine.LearningReserve * (f.rate*(during+after).Seconds() + f.burst)
		}
		assert.LessOrEqual(&c, sum, most, h.name)
		f.settle(h.name, part)
		if len(c) == 0 {
			return
		}
		require.Less(t, attempt, attempts, "%s: %s", h.name, c)
	}
}

// settle waits until all is fair again: after an outage, until the background has tried again and Redis has learnt.
func (f *quotaFleet) settle(name string, part float64) {
	f.t.Helper()
	for tries := 1; ; tries++ {
		got := f.run(300 * time.Millisecond)
		j := jain(got, f.shares())
		if j > 0.95 {
			f.t.Logf("%s: %.3f of the limit in all; then %.3f with jain %.4f, window %d", name, part, total(got)/f.rate, j, tries)
			return
		}
		require.Less(f.t, tries, 30, "%s: jain %.4f", name, j)
	}
}

// A replica that lags takes over: what was granted since is claimed, and all is fair again soon. On a busy machine leases may end before
// they are claimed, and then the replica gives out little for a second.
func TestLimitFailover(t *testing.T) {
	t.Parallel()
	inSomeAttempt(t, failover)
}

func failover(t *testing.T, c *complaints) {
	t.Helper()
	const rate = 2000
	s := redistest.Start(t)
	link := redistest.NewProxy(t, s.Addr())
	replica := redistest.Replica(t, link.Addr())
	p := redistest.NewProxy(t, s.Addr())
	f := &quotaFleet{t: t, rate: rate, burst: rate / 5}
	for _, d := range skewedDemand(4, 2*rate) {
		o := steadyOptions(clientOf(t, p.Addr()), rate)
		o.Interval = 100 * time.Millisecond
		f.join(o, d)
	}
	f.run(800 * time.Millisecond)
	link.BlackHole(true)
	f.demand[0], f.demand[3] = f.demand[3], f.demand[0]
	f.run(300 * time.Millisecond)
	p.SetTarget(replica.Addr())
	replica.Promote()
	p.Reset()
	got := total(f.run(time.Second))
	t.Logf("the second after: %.3f of the limit", got/rate)
	require.LessOrEqual(t, got, 1.6*rate) // for an interval, what was raised since counts twice
	assert.GreaterOrEqual(c, got, 0.6*rate)
	f.settle("a failover", got/rate)
}
