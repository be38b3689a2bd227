package exact

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// A use is tokens that a call took and has not given back.
type use struct {
	Result
	at     int64 // µs
	ends   int64 // of the window of a FixedWindow
	ticket spillway.Ticket
	policy spillway.Policy // that made the ticket
}

// Whatever is taken, given back in part or whole, late or at once, or cancelled by a later policy: in no window are more tokens
// used than the rule promises. SPILLWAY_LONG=1 plays 20 seeds of 10 000 steps.
func TestNoWindowHoldsMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	seeds, steps := 2, 400
	if os.Getenv("SPILLWAY_LONG") != "" {
		seeds, steps = 20, 10_000
	}
	client := server(t)
	for name, rule := range map[string]limiter.Rule{
		"bucket":         perSecond(10, 10),
		"odd bucket":     limiter.Bucket{Rate: limiter.Per(7, 3*time.Second), Burst: 5},
		"window":         limiter.FixedWindow{Limit: 20, Period: 900 * ms},
		"minute":         limiter.FixedWindow{Limit: 50, Calendar: limiter.EveryMinute},
		"sliding window": limiter.SlidingWindow{Limit: 15, Window: time.Second, Buckets: 10},
		"sliding log":    limiter.SlidingLog{Limit: 15, Window: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			for range seeds {
				require.NoError(t, client.FlushAll(t.Context()).Err())
				play(t, newFixture(t, client, rule), rule, rand.Uint64(), steps)
			}
		})
	}
}

// play takes and gives back at random, and checks every window in the end.
func play(t *testing.T, f *fixture, rule limiter.Rule, seed uint64, steps int) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	var uses []*use
	var clock time.Duration
	back := 0
	for range steps {
		clock += time.Duration(rnd.ExpFloat64() * float64(40*ms)).Truncate(time.Microsecond)
		if rnd.IntN(60) == 0 {
			clock += time.Duration(rnd.IntN(2000)) * ms
		}
		f.at(clock)
		now, n := f.now.UnixMicro(), rnd.IntN(5)+1
		if recent := uses[max(len(uses)-30, 0):]; len(recent) > 0 && rnd.IntN(3) == 0 {
			u := recent[rnd.IntN(len(recent))]
			if u.policy != nil && u.Taken > 0 {
				u.policy.Done(spillway.Request{Key: "k", Cost: int(u.Taken)}, u.ticket, spillway.Result{Outcome: spillway.Refused})
				u.Taken = 0
			} else {
				require.NoError(t, f.Refund(t.Context(), "k", &u.Result, n))
			}
			back++
			continue
		}
		if u := takeOne(t, f, rnd, now, n); u != nil {
			uses = append(uses, u)
		}
	}
	checkPromise(t, of(rule), uses, "seed "+strconv.FormatUint(seed, 10))
	require.Greater(t, back, steps/10)
}

// takeOne takes tokens in one of the ways that there are, and returns nil if it got none.
func takeOne(t *testing.T, f *fixture, rnd *rand.Rand, now int64, n int) *use {
	u := &use{at: now}
	var err error
	switch rnd.IntN(3) {
	case 0:
		u.Result, err = f.Take(t.Context(), "k", n)
	case 1:
		u.Result, err = f.TakeUpTo(t.Context(), "k", n)
	default:
		var ticket spillway.Ticket
		if ticket, err = f.Admit(t.Context(), spillway.Request{Key: "k", Cost: n}); err != nil {
			require.ErrorIs(t, err, spillway.ErrRejected)
			return nil
		}
		u.ticket, u.policy, u.Taken = ticket, f, int64(n)
		u.FullIn = f.peek().FullIn
	}
	require.NoError(t, err)
	require.NoError(t, u.Err)
	if u.Taken == 0 {
		return nil
	}
	u.ends = now + u.FullIn.Microseconds()
	return u
}

// checkPromise checks what was used against what the rule promises.
func checkPromise(t *testing.T, rule rule, uses []*use, what string) {
	t.Helper()
	switch rule.kind {
	case bucketKind: // Rate × d + Burst in any time d: a bucket that holds what was used never overflows
		per, drain := rule.ticks()
		level, at := int64(0), int64(0)
		for _, u := range uses {
			level, at = max(level-(u.at-at)*drain, 0)+u.Taken*per, u.at
			require.LessOrEqual(t, level, rule.limit*per, what)
		}
	case windowKind, calendarKind:
		used := map[int64]int64{}
		for _, u := range uses {
			used[u.ends] += u.Taken
			require.LessOrEqual(t, used[u.ends], rule.limit, what)
		}
	default: // in any time of a window
		for i, u := range uses {
			sum := int64(0)
			for _, v := range uses[i:] {
				if v.at-u.at >= micros(rule.window) {
					break
				}
				sum += v.Taken
			}
			require.LessOrEqual(t, sum, rule.limit, what)
		}
	}
}

// The same of an Allowance, whose chunks last up to a term: several processes, windows of real time, tokens given back late.
func TestNoWindowOfAnAllowanceHoldsMore(t *testing.T) {
	t.Parallel()
	const limit = 40
	client := server(t)
	windows := 6
	if os.Getenv("SPILLWAY_LONG") != "" {
		windows = 60
	}
	rule := limiter.FixedWindow{Limit: limit, Period: 200 * ms}
	var nodes []*Allowance
	for range 3 {
		nodes = append(nodes, newAllowance(t, client, rule, AllowanceOptions{Nodes: 3, Chunk: 16, TTL: 150 * ms}))
	}
	used, starts := map[int64]int64{}, map[int64]int64{}
	rnd := rand.New(rand.NewPCG(rand.Uint64(), 3))
	type open struct {
		*use
		r spillway.Request
	}
	var uses []open
	for began := time.Now(); time.Since(began) < time.Duration(windows)*200*ms; {
		node := nodes[rnd.IntN(len(nodes))]
		if len(uses) > 0 && rnd.IntN(3) == 0 {
			i := len(uses) - 1 - rnd.IntN(min(len(uses), 40))
			u := uses[i]
			u.policy.Done(u.r, u.ticket, spillway.Result{Outcome: spillway.Refused})
			used[u.ends] -= u.Taken
			uses = slices.Delete(uses, i, i+1)
			continue
		}
		r := spillway.Request{Key: "k", Cost: 1 + rnd.IntN(3)}
		ticket, err := node.Admit(context.Background(), r)
		if err != nil {
			require.ErrorIs(t, err, spillway.ErrRejected)
			continue
		}
		stamp := int64(ticket >> ticketShift)
		if starts[stamp] == 0 {
			starts[stamp] = windowStart(t, client, nodes[0])
		}
		if starts[stamp] == 0 || starts[stamp] > stamp { // the window ended before it was asked for: a busy machine
			delete(starts, stamp)
			node.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
			continue
		}
		ends := starts[stamp]
		used[ends] += int64(r.Cost)
		require.LessOrEqual(t, used[ends], int64(limit))
		uses = append(uses, open{&use{ends: ends, ticket: ticket, policy: node, Result: Result{Result: cluster.Result{Taken: int64(r.Cost)}}}, r})
	}
	require.GreaterOrEqual(t, len(used), 2)
}

// windowStart returns when the present window began, by Redis's clock, or 0 if there is none. It begins with the first token taken, and ends early when all
// have been given back.
func windowStart(t *testing.T, client redis.UniversalClient, a *Allowance) int64 {
	v, err := client.Get(t.Context(), a.limit.keys("k")[0]).Bytes()
	if errors.Is(err, redis.Nil) {
		return 0
	}
	require.NoError(t, err)
	return int64(math.Float64frombits(binary.LittleEndian.Uint64(v)))
}

// A token that was taken in one window never goes to the chunk of the next.
func TestAllowanceKeepsWindowsApart(t *testing.T) {
	const limit, period = 40, time.Second
	client := server(t)
	r := spillway.Request{Key: "k"}
	for tries := 0; ; tries++ {
		require.Less(t, tries, 20, "the machine is too busy to use up a window before it ends")
		a := newAllowance(t, client, limiter.FixedWindow{Limit: limit, Period: period}, AllowanceOptions{Nodes: 1, Chunk: limit})
		var old []spillway.Ticket
		for range 10 {
			ticket, err := a.Admit(t.Context(), r)
			require.NoError(t, err)
			old = append(old, ticket)
		}
		redistest.Pause(period + 100*ms) // the window has ended
		began, admitted := time.Now(), 0
		for range 3 * limit {
			if _, err := a.Admit(t.Context(), r); err == nil {
				admitted++
			}
			if len(old) > 0 {
				a.Done(r, old[0], spillway.Result{Outcome: spillway.Refused})
				old = old[1:]
			}
		}
		if time.Since(began) < period-100*ms {
			require.Equal(t, limit, admitted)
			return
		}
		redistest.Pause(period)
	}
}

// Close gives back what was fetched of any number of keys, and says so if it cannot.
func TestAllowanceCloseGivesAllBack(t *testing.T) {
	const keys = 2000
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	a := newAllowance(t, redistest.NewClient(t, proxy.Addr()), limiter.FixedWindow{Limit: 1000, Calendar: limiter.EveryMonth},
		AllowanceOptions{Nodes: 1, Chunk: 3, TTL: time.Hour})
	a.limit.conn.Timeout = 2 * time.Second // the machine may be busy
	for i := range keys {
		c := a.find("k" + strconv.Itoa(i))
		res, err := a.limit.TakeUpTo(t.Context(), "k"+strconv.Itoa(i), 3)
		require.NoError(t, err)
		require.EqualValues(t, 3, res.Taken)
		c.fill(int64(time.Since(a.base)), 1, &res, a)
	}
	proxy.SetLatency(20 * ms) // one by one it would take 40 s
	require.NoError(t, a.Close())
	proxy.Heal()
	left := int64(0)
	for i := range keys {
		res, err := a.limit.Take(t.Context(), "k"+strconv.Itoa(i), 0)
		require.NoError(t, err)
		left += 1000 - res.Remaining
	}
	require.EqualValues(t, keys, left, "tokens taken; one was spent of each key")
	_, err := a.Admit(t.Context(), spillway.Request{Key: "k1"})
	require.NoError(t, err, "one by one")
	require.NoError(t, a.Close())

	b := newAllowance(t, redistest.NewClient(t, server.Addr()), limiter.FixedWindow{Limit: 10, Period: time.Hour}, AllowanceOptions{Nodes: 1})
	_, err = b.Admit(t.Context(), spillway.Request{Key: "b"})
	require.NoError(t, err)
	_, err = b.Admit(t.Context(), spillway.Request{Key: "b"})
	require.NoError(t, err)
	server.Kill()
	err = b.Close()
	require.ErrorAs(t, err, new(*cluster.RedisError))
	require.ErrorContains(t, err, "of 1 keys were not given back")
}

// What another process resets is noticed within CacheTTL, and clients hear the true time until then.
func TestResetByAnotherProcessIsNoticed(t *testing.T) {
	client := server(t)
	o := Options{Rules: []limiter.Rule{limiter.FixedWindow{Limit: 1, Period: 24 * time.Hour}}}
	here, there := newLimit(t, client, o), newLimit(t, client, o)
	for range 2 {
		_, err := here.Take(t.Context(), "k", 1)
		require.NoError(t, err)
	}
	r, err := here.Take(t.Context(), "k", 1)
	require.NoError(t, err)
	require.Equal(t, cluster.FromMemory, r.Source)
	require.Greater(t, r.RetryAfter, 23*time.Hour)
	waited := make(chan error, 1)
	go func() { waited <- here.Wait(t.Context(), "k", 1) }()
	require.NoError(t, there.Reset(t.Context(), "k"))
	select {
	case err := <-waited:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		require.Fail(t, "a day's wait goes on after a reset")
	}
	require.NoError(t, there.Reset(t.Context(), "k"))
	redistest.Await(t, 20*time.Second, func() bool {
		r, err := here.Take(t.Context(), "k", 1)
		require.NoError(t, err)
		return r.Allowed
	})
}

// Long keys are kept by their hash: apart from each other, and short.
func TestLongKeysAreKeptShort(t *testing.T) {
	client := server(t)
	l := newLimit(t, client, Options{Rules: []limiter.Rule{limiter.FixedWindow{Limit: 2, Period: time.Hour}}})
	a, b := string(make([]byte, 10_000)), string(make([]byte, 10_001))
	for _, key := range []string{a, b} {
		for i := range 4 {
			r, err := l.Take(t.Context(), key, 1)
			require.NoError(t, err)
			require.Equal(t, i < 2, r.Allowed)
			require.Equal(t, i == 3, r.Source == cluster.FromMemory)
		}
	}
	keys := client.Keys(t.Context(), "*").Val()
	require.NotEmpty(t, keys)
	for _, key := range keys {
		require.Less(t, len(key), 200)
	}
	require.Len(t, l.memory.recall(a).key, len("sha256-")+64)
}

// TakeUpTo takes what there is, however much is asked for.
func TestTakeUpToOfMoreThanNumbersHold(t *testing.T) {
	for _, rules := range [][]limiter.Rule{
		{perSecond(10, 10)}, {limiter.FixedWindow{Limit: 10, Period: time.Hour}}, {limiter.SlidingLog{Limit: 10, Window: time.Hour}},
		{limiter.SlidingWindow{Limit: 10, Window: time.Hour}}, {perSecond(10, 10), limiter.FixedWindow{Limit: 20, Period: time.Hour}},
	} {
		f := newFixture(t, server(t), rules...)
		for _, n := range []int{int(min(int64(1)<<53, math.MaxInt)), math.MaxInt - 1, math.MaxInt} {
			key := strconv.Itoa(n)
			for _, left := range []int64{10, 0} {
				r, err := f.TakeUpTo(t.Context(), key, n)
				require.NoError(t, err)
				require.NoError(t, r.Err)
				require.False(t, r.Allowed)
				require.Equal(t, cluster.FromRedis, r.Source)
				require.Equal(t, left, r.Taken, "%d of %v", n, rules)
				require.Positive(t, r.RetryAfter)
				require.LessOrEqual(t, r.RetryAfter, 2*time.Hour)
				f.forgetAll()
			}
		}
	}
}
