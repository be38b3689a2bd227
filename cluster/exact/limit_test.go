package exact

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// A fixture is a Limit on a Redis whose clock the test sets.
type fixture struct {
	*Limit
	t      *testing.T
	client *redis.Client
	now    time.Time
}

// clockKey is where the scripts of a fixture read the time, in µs.
const clockKey = "test:clock"

// epoch is a Thursday, at no edge of anything.
var epoch = time.Date(2026, 3, 5, 10, 20, 30, 123456000, time.UTC)

// graceMillis is by how much keys outlive what they hold in the scripts of a fixture, since they expire by the real clock.
const graceMillis = 3_600_000

// withClock returns the script with its time read from clockKey, and keys that stay for graceMillis longer.
func withClock(s *call.Script) *call.Script {
	source := strings.Replace(s.Source, call.Clock, "local now = tonumber(redis.call('GET', '"+clockKey+"'))\n", 1)
	long := strings.ReplaceAll(source, "/ 1000) + 1", "/ 1000) + 1 + "+strconv.Itoa(graceMillis))
	if source == s.Source || long == source {
		panic("the script is not what it used to be")
	}
	return call.NewScript(long)
}

func newLimit(t *testing.T, client redis.UniversalClient, o Options) *Limit {
	t.Helper()
	o.Client = client
	if o.Fallback == 0 && o.Nodes == 0 {
		o.Fallback = cluster.RefuseAll
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second // the machine may be busy
	}
	l, err := New(&o)
	require.NoError(t, err)
	return l
}

func newFixture(t *testing.T, client *redis.Client, rules ...limiter.Rule) *fixture {
	t.Helper()
	f := &fixture{Limit: newLimit(t, client, Options{Rules: rules}), t: t, client: client}
	f.taking, f.giving = withClock(f.taking), withClock(f.giving)
	f.set(epoch)
	return f
}

// set sets the clock of Redis, and lets expire what should have, up to the ms that keys live longer.
func (f *fixture) set(now time.Time) {
	f.t.Helper()
	f.now = now
	require.NoError(f.t, f.client.Set(f.t.Context(), clockKey, now.UnixMicro(), 0).Err())
	f.forgetAll()
}

// forgetAll makes the Limit ask again: memory goes by the clock of the process, which does not move here.
func (f *fixture) forgetAll() { f.memory = newMemory(64) }

func (f *fixture) at(d time.Duration) { f.t.Helper(); f.set(epoch.Add(d)) }

func (f *fixture) take(n int) Result {
	f.t.Helper()
	r, err := f.Take(f.t.Context(), "k", n)
	require.NoError(f.t, err)
	require.NoError(f.t, r.Err)
	f.forgetAll()
	f.checkTTL()
	return r
}

func (f *fixture) peek() Result {
	f.t.Helper()
	r, err := f.Take(f.t.Context(), "k", 0)
	require.NoError(f.t, err)
	require.NoError(f.t, r.Err)
	return r
}

// checkTTL checks that every key goes by itself.
func (f *fixture) checkTTL() {
	f.t.Helper()
	for _, k := range f.client.Keys(f.t.Context(), "spillway*").Val() {
		ttl := f.client.PTTL(f.t.Context(), k).Val()
		require.Greater(f.t, ttl, graceMillis*ms/2, "key %q", k)
	}
}

func server(t *testing.T) *redis.Client {
	c := redistest.Start(t).Client()
	clone := redis.NewClient(&redis.Options{Addr: c.Options().Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = clone.Close() })
	return clone
}

func perSecond(n, burst int) limiter.Rule {
	return limiter.Bucket{Rate: limiter.Per(n, time.Second), Burst: burst}
}

// of returns the figures of a valid rule.
func of(r limiter.Rule) rule { return spillway.Must(ruleOf(r)) }

const ms = time.Millisecond

func TestBucketAsGCRA(t *testing.T) {
	f := newFixture(t, server(t), perSecond(10, 10))
	require.Equal(t, limiter.State{Limit: 10, Remaining: 10}, f.peek().State)
	require.Empty(t, f.client.Keys(t.Context(), "spillway*").Val(), "Peek made a key")

	r := f.take(1)
	require.True(t, r.Allowed)
	require.Equal(t, limiter.State{Limit: 10, Remaining: 9, NextIn: 100 * ms, FullIn: 100 * ms}, r.State)
	require.Equal(t, Result{Result: cluster.Result{State: r.State, Allowed: true, Taken: 1, Rule: "token bucket"}, stamp: f.now.UnixMicro()}, r)
	require.NoError(t, f.Reset(t.Context(), "k"))
	require.Equal(t, int64(9), f.take(1).Remaining)
	r = f.take(2)
	require.Equal(t, int64(7), r.Remaining)
	require.Equal(t, 300*ms, r.FullIn)
	r = f.take(7)
	require.Equal(t, int64(0), r.Remaining)
	require.Equal(t, time.Second, r.FullIn)
	r = f.take(1)
	require.False(t, r.Allowed)
	require.Equal(t, 100*ms, r.RetryAfter)

	require.NoError(t, f.Reset(t.Context(), "k"))
	f.take(3)
	up, err := f.TakeUpTo(t.Context(), "k", 10)
	require.NoError(t, err)
	require.Equal(t, int64(7), up.Taken)
	require.False(t, up.Allowed)
	f.forgetAll()
	up, err = f.TakeUpTo(t.Context(), "k", 10)
	require.NoError(t, err)
	require.Equal(t, int64(0), up.Taken)
	require.Equal(t, 100*ms, up.NextIn)
}

// The table of golang.org/x/time/rate, in steps of 100 ms at 10 per second.
func TestBucketAsTokenBucket(t *testing.T) {
	type call struct {
		at float64
		n  int
		ok bool
	}
	for name, c := range map[string]struct {
		burst int
		calls []call
	}{
		"burst 1": {1, []call{{0, 1, true}, {0, 1, false}, {0, 1, false}, {1, 1, true}, {1, 1, false}, {1, 1, false}, {2, 1, true}, {2, 1, false}}},
		"burst 3": {3, []call{
			{0, 2, true}, {0, 2, false}, {0, 1, true}, {0, 1, false}, {2, 1, true}, {3, 1, true}, {4, 1, true}, {4, 1, true}, {4, 1, false},
			{9, 3, true}, {9, 0, false},
		}},
		"clock back": {1, []call{{0, 1, true}, {1, 1, true}, {.5, 0, false}, {1.5, 1, false}, {2, 1, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, server(t), perSecond(10, c.burst))
			for i, call := range c.calls {
				f.at(time.Duration(call.at * float64(100*ms)))
				require.Equal(t, call.ok, f.take(call.n).Allowed, "call %d: %v", i, call)
			}
		})
	}
}

func TestWhatCanNeverPass(t *testing.T) {
	f := newFixture(t, server(t), perSecond(10, 10), limiter.FixedWindow{Limit: 8, Period: time.Hour})
	for _, n := range []int{-5, 9, 11} {
		_, err := f.Take(t.Context(), "k", n)
		var cost *limiter.CostError
		require.ErrorAs(t, err, &cost)
		require.Equal(t, n, cost.Cost)
		require.ErrorIs(t, err, spillway.ErrRejected)
		var rej *spillway.Rejection
		require.ErrorAs(t, err, &rej)
		require.NotNil(t, rej)
		require.Error(t, f.Wait(t.Context(), "k", n))
		_, err = f.Admit(t.Context(), spillway.Request{Key: "k", Cost: n})
		require.ErrorAs(t, err, &rej)
		require.Zero(t, rej.RetryAfter)
	}
	_, err := f.Take(t.Context(), "k", 9)
	require.EqualError(t, err, "limiter: fixed window: cost 9 exceeds what can ever pass, 8")
	_, err = f.TakeUpTo(t.Context(), "k", -1)
	require.Error(t, err)
	require.NoError(t, f.Refund(t.Context(), "k", &Result{Result: cluster.Result{Taken: 1}}, -1))
	require.Empty(t, f.client.Keys(t.Context(), "spillway*").Val())
	require.Equal(t, int64(11), f.Stats().Impossible)
}

// A model is what a rule does, said as plainly as possible: it knows all that was taken, and when.
type model struct {
	rule  rule
	taken []taking
	// level of a bucket in tokens × per, and when it was that
	level, at int64
	ends      int64 // of the window
}

type taking struct{ at, n int64 }

func (m *model) used(now int64) int64 {
	switch m.rule.kind {
	case bucketKind:
		per, drain := m.rule.ticks()
		m.level, m.at = max(m.level-(now-m.at)*drain, 0), now
		return ceilDiv(m.level, per)
	case windowKind:
		if now >= m.ends {
			m.taken = nil
		}
	case calendarKind:
		if now >= m.ends {
			m.taken, m.ends = nil, (&calendarEnds{rule: m.rule}).end(now)
		}
	}
	var sum int64
	length := micros(m.rule.window)
	for _, k := range m.taken {
		at := k.at
		if m.rule.kind == ringKind {
			q := m.rule.args()[1]
			at, length = (at/q+1)*q, q*int64(m.rule.buckets)
		}
		if m.rule.kind == windowKind || m.rule.kind == calendarKind || at+length > now {
			sum += k.n
		}
	}
	return sum
}

func (m *model) take(now, n int64) {
	switch m.rule.kind {
	case bucketKind:
		per, _ := m.rule.ticks()
		m.level += n * per
	case windowKind:
		if m.used(now) == 0 {
			m.ends = now + micros(m.rule.window)
		}
		fallthrough
	default:
		m.taken = append(m.taken, taking{now, n})
	}
}

// giveBack forgets n of so many tokens that were taken at a time, if they count still. A log forgets the oldest instead.
func (m *model) giveBack(now, n, taken, at int64) {
	m.used(now)
	if m.rule.kind == bucketKind {
		per, drain := m.rule.ticks()
		m.level = max(m.level-max(min(n*per, taken*per-(now-at)*drain), 0), 0)
		return
	}
	for i := range m.taken {
		only := *m
		only.taken = []taking{{at, 1}}
		if (m.rule.kind != logKind && m.taken[i].at != at) || only.used(now) == 0 {
			continue
		}
		only.taken = m.taken[i : i+1]
		back := min(n, only.used(now))
		m.taken[i].n -= back
		n -= back
	}
}

// Random calls get from the script what the models say.
func TestRulesAgainstModels(t *testing.T) {
	t.Parallel()
	client := server(t)
	rules := map[string]limiter.Rule{
		"bucket":         perSecond(10, 10),
		"odd bucket":     limiter.Bucket{Rate: limiter.Per(7, time.Minute), Burst: 3},
		"leaky":          limiter.Bucket{Rate: limiter.Per(999983, 1000*time.Second), Burst: 20, Name: "leaky bucket"},
		"window":         limiter.FixedWindow{Limit: 7, Period: 900 * ms},
		"minute":         limiter.FixedWindow{Limit: 50, Calendar: limiter.EveryMinute},
		"sliding window": limiter.SlidingWindow{Limit: 9, Window: time.Second, Buckets: 10},
		"odd sliding":    limiter.SlidingWindow{Limit: 9, Window: 1001 * ms, Buckets: 7},
		"sliding log":    limiter.SlidingLog{Limit: 9, Window: time.Second},
	}
	all := make([]limiter.Rule, 0, len(rules))
	for name, r := range rules {
		t.Run(name, func(t *testing.T) { againstModels(t, newFixture(t, client, r)) })
		if len(all) < maxRules {
			all = append(all, r)
		}
	}
	t.Run("together", func(t *testing.T) { againstModels(t, newFixture(t, client, all...)) })
}

// A gift is what a call took, and when.
type gift struct {
	Result
	at int64
}

func againstModels(t *testing.T, f *fixture) {
	require.NoError(t, f.client.FlushAll(t.Context()).Err())
	f.set(epoch)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	models := make([]model, len(f.rules()))
	for i, r := range f.rules() {
		models[i] = model{rule: r}
	}
	most := int64(1 << 60)
	for _, r := range f.rules() {
		most = min(most, r.limit)
	}
	var clock time.Duration
	var held []gift
	for step := range 400 {
		clock += time.Duration(rnd.ExpFloat64() * float64(60*ms)).Truncate(time.Microsecond)
		if rnd.IntN(50) == 0 {
			clock += time.Duration(rnd.IntN(3000)) * ms
		}
		f.at(clock)
		now := f.now.UnixMicro()
		n := rnd.Int64N(min(most, 4)) + 1
		room := most
		for i := range models {
			room = min(room, max(f.rules()[i].limit-models[i].used(now), 0))
		}
		what := "step " + strconv.Itoa(step) + " at " + clock.String()
		switch rnd.IntN(8) {
		case 0:
			if len(held) == 0 {
				break
			}
			g := &held[rnd.IntN(len(held))]
			before := g.Taken
			require.NoError(t, f.Refund(t.Context(), "k", &g.Result, int(n)))
			for i := range models {
				models[i].giveBack(now, before-g.Taken, before, g.at)
			}
		case 1:
			r, err := f.TakeUpTo(t.Context(), "k", int(n))
			require.NoError(t, err)
			require.Equal(t, min(n, room), r.Taken, what)
			for i := range models {
				if r.Taken > 0 {
					models[i].take(now, r.Taken)
				}
			}
			held = append(held, gift{r, now})
		case 2:
			r := f.peek()
			require.LessOrEqual(t, room, r.Remaining, what)
			if len(models) == 1 {
				require.Equal(t, room, r.Remaining, what)
			}
		default:
			r := f.take(int(n))
			require.Equal(t, n <= room, r.Allowed, what)
			if r.Allowed {
				for i := range models {
					models[i].take(now, n)
				}
				held = append(held, gift{r, now})
			} else {
				checkWait(t, models, now, n, r.RetryAfter, what)
			}
		}
	}
	f.checkTTL()
}

// checkWait checks that the same call passes after wait, and not before.
func checkWait(t *testing.T, models []model, now, n int64, wait time.Duration, what string) {
	t.Helper()
	passes := func(at int64) bool {
		for i := range models {
			m := models[i]
			if m.rule.limit-m.used(at) < n {
				return false
			}
		}
		return true
	}
	require.True(t, passes(now+wait.Microseconds()), "%s: RetryAfter %v is too early", what, wait)
	require.False(t, passes(now+wait.Microseconds()-1), "%s: RetryAfter %v is too late", what, wait)
}
