package exact

import (
	"maps"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

func TestFixedWindow(t *testing.T) {
	f := newFixture(t, server(t), limiter.FixedWindow{Limit: 3, Period: time.Second})
	for i := range 3 {
		r := f.take(1)
		require.True(t, r.Allowed)
		require.Equal(t, int64(2-i), r.Remaining)
	}
	f.at(999*ms + 999*time.Microsecond)
	for range 3 {
		r := f.take(1)
		require.False(t, r.Allowed)
		require.Equal(t, int64(0), r.Remaining)
		require.Equal(t, time.Microsecond, r.RetryAfter)
	}
	require.Equal(t, int64(0), f.peek().Remaining)
	require.NoError(t, f.Reset(t.Context(), "k"))
	require.Equal(t, int64(3), f.peek().Remaining)
	f.take(1)
	f.at(1500 * ms)
	require.Equal(t, int64(2), f.peek().Remaining, "the window began anew with the first request after the reset")
}

// The cases of a service that counts in windows: not drained by what is refused, given back, drained on demand.
func TestFixedWindowIsNotDrainedByRefusals(t *testing.T) {
	f := newFixture(t, server(t), limiter.FixedWindow{Limit: 2000, Period: time.Minute})
	var first Result
	for _, c := range []struct {
		n    int
		ok   bool
		left int64
	}{{1000, true, 1000}, {1500, false, 1000}, {500, true, 500}, {400, true, 100}, {100, true, 0}, {1, false, 0}} {
		r := f.take(c.n)
		require.Equal(t, c.ok, r.Allowed, c)
		require.Equal(t, c.left, r.Remaining, c)
		if first.Taken == 0 {
			first = r
		}
	}
	require.NoError(t, f.Refund(t.Context(), "k", &first, 9))
	r, err := f.TakeUpTo(t.Context(), "k", 100)
	require.NoError(t, err)
	require.Equal(t, int64(9), r.Taken)
	require.False(t, r.Allowed)
	require.Equal(t, int64(0), r.Remaining)
	require.NoError(t, f.Refund(t.Context(), "k", &first, 1_000_000))
	require.Equal(t, int64(991), f.peek().Remaining, "never more than were taken")
	require.Zero(t, first.Taken)
}

// A rule that is changed between two versions of a program keeps what was taken.
func TestRuleChanges(t *testing.T) {
	client := server(t)
	window := func(n int) limiter.Rule { return limiter.FixedWindow{Limit: n, Period: time.Minute} }
	sliding := func(n, buckets int) limiter.Rule {
		return limiter.SlidingWindow{Limit: n, Window: time.Second, Buckets: buckets}
	}
	logged := func(n int) limiter.Rule { return limiter.SlidingLog{Limit: n, Window: time.Second} }
	for name, c := range map[string]struct {
		before, after limiter.Rule
		take          int
		left          int64
	}{
		"window raised":      {window(10), window(15), 8, 7},
		"window lowered":     {window(10), window(5), 8, 0},
		"bucket raised":      {perSecond(10, 10), perSecond(20, 20), 3, 17},
		"bucket lowered":     {perSecond(10, 10), perSecond(5, 5), 3, 2},
		"bucket below level": {perSecond(10, 10), perSecond(5, 5), 8, 0},
		"bucket to odd":      {perSecond(10, 10), perSecond(7, 10), 4, 6},
		"sliding raised":     {sliding(10, 10), sliding(12, 10), 8, 4},
		"sliding finer":      {sliding(10, 10), sliding(10, 60), 8, 2},
		"log lowered":        {logged(10), logged(5), 8, 0},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, client.FlushAll(t.Context()).Err())
			require.True(t, newFixture(t, client, c.before).take(c.take).Allowed)
			after := newFixture(t, client, c.after)
			require.Equal(t, c.left, after.peek().Remaining)
			r := after.take(int(of(c.after).limit))
			require.False(t, r.Allowed)
			after.at(r.RetryAfter)
			require.True(t, after.take(int(of(c.after).limit)).Allowed, "after %v", r.RetryAfter)
		})
	}
}

// When the clock of the server is set back, nobody is locked out for longer than it takes to get all back, and nobody gets
// more than the limit.
func TestServerClockSetBack(t *testing.T) {
	client := server(t)
	for name, c := range map[string]struct {
		rule limiter.Rule
		full time.Duration
	}{
		"bucket": {perSecond(10, 10), time.Second},
		"window": {limiter.FixedWindow{Limit: 10, Period: time.Second}, time.Second},
		"minute": {limiter.FixedWindow{Limit: 10, Calendar: limiter.EveryMinute}, time.Minute},
		"ring":   {limiter.SlidingWindow{Limit: 10, Window: time.Second, Buckets: 10}, 1100 * ms},
		"log":    {limiter.SlidingLog{Limit: 10, Window: time.Second}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, client.FlushAll(t.Context()).Err())
			f := newFixture(t, client, c.rule)
			for range 10 {
				require.True(t, f.take(1).Allowed)
			}
			f.at(-time.Hour)
			require.LessOrEqual(t, f.peek().Remaining, int64(0))
			r := f.take(1)
			require.False(t, r.Allowed)
			require.LessOrEqual(t, r.RetryAfter, c.full)
			f.at(-time.Hour + c.full/4)
			r = f.take(10)
			require.False(t, r.Allowed, "what was taken still counts")
			f.at(-time.Hour + c.full)
			require.True(t, f.take(10).Allowed, "locked out: %+v", f.peek())
			require.False(t, f.take(1).Allowed)
		})
	}
}

// A step back by less than that is made up for by nobody either.
func TestServerClockSetBackALittle(t *testing.T) {
	t.Parallel()
	client := server(t)
	for name, rule := range map[string]limiter.Rule{
		"bucket": perSecond(10, 10),
		"ring":   limiter.SlidingWindow{Limit: 10, Window: time.Second, Buckets: 10},
		"log":    limiter.SlidingLog{Limit: 10, Window: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, client.FlushAll(t.Context()).Err())
			f := newFixture(t, client, rule)
			admitted := 0
			for i := range 400 { // 20 s in steps of 50 ms, one of 10 of them back by 10 ms
				d := time.Duration(i) * 50 * ms
				if i%10 == 9 {
					d -= 60 * ms
				}
				f.at(d)
				for f.take(1).Allowed {
					admitted++
				}
			}
			require.InDelta(t, 205, admitted, 16)
		})
	}
}

// The days on which clocks change have 23 and 25 hours; the window follows, and what other nodes believe the time to be makes
// no difference.
func TestCalendarAcrossClockChanges(t *testing.T) {
	client := server(t)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		day   time.Time
		hours time.Duration
	}{
		"spring": {time.Date(2026, 3, 29, 0, 0, 0, 0, berlin), 23},
		"autumn": {time.Date(2026, 10, 25, 0, 0, 0, 0, berlin), 25},
		"plain":  {time.Date(2026, 6, 1, 0, 0, 0, 0, berlin), 24},
	} {
		for skew := -time.Hour; skew <= time.Hour; skew += time.Hour {
			t.Run(name+" "+skew.String(), func(t *testing.T) {
				require.NoError(t, client.FlushAll(t.Context()).Err())
				f := newFixture(t, client, limiter.FixedWindow{Limit: 1, Calendar: limiter.EveryDay, Location: berlin})
				believe := func() {
					f.clock.seen.Store(&sighting{server: f.now.Add(skew).UnixMicro(), local: time.Now()})
				}
				f.set(c.day)
				believe()
				r := f.take(1)
				require.True(t, r.Allowed)
				require.Equal(t, c.hours*time.Hour, r.NextIn)
				f.set(c.day.Add(c.hours*time.Hour - time.Microsecond))
				believe()
				r = f.take(1)
				require.False(t, r.Allowed)
				require.Equal(t, time.Microsecond, r.RetryAfter)
				f.set(c.day.Add(c.hours * time.Hour))
				believe()
				require.True(t, f.take(1).Allowed)
			})
		}
	}
}

// A node whose clock is a year off asks twice once, and then knows.
func TestCalendarLearnsTheTime(t *testing.T) {
	client := server(t)
	f := newFixture(t, client, limiter.FixedWindow{Limit: 100, Calendar: limiter.EveryMinute})
	f.clock.seen.Store(&sighting{server: f.now.Add(365 * 24 * time.Hour).UnixMicro(), local: time.Now()})
	calls := func() int64 { return redistest.CommandCalls(t, client, "evalsha") }
	f.take(1)
	before := calls()
	f.take(1)
	require.Equal(t, before+1, calls())
	require.Equal(t, int64(98), f.peek().Remaining)
}

func TestAllOrNone(t *testing.T) {
	f := newFixture(t, server(t), perSecond(10, 5), limiter.FixedWindow{Limit: 8, Period: time.Hour, Name: "hourly"})
	r := f.take(5)
	require.True(t, r.Allowed)
	require.Equal(t, "token bucket", r.Rule, "it has the smaller part left")
	r = f.take(1)
	require.False(t, r.Allowed)
	require.Equal(t, "token bucket", r.Rule)
	f.at(500 * ms)
	r = f.take(4)
	require.False(t, r.Allowed)
	require.Equal(t, "hourly", r.Rule)
	require.Equal(t, time.Hour-500*ms, r.RetryAfter)
	r = f.take(3)
	require.True(t, r.Allowed, "the bucket lost tokens to a call that the other rule refused")
	require.NoError(t, f.Refund(t.Context(), "k", &r, 3))
	require.True(t, f.take(3).Allowed)
}

// Nothing is given back twice: neither by time and by hand, nor to a window that began since.
func TestGivingBackWithAStamp(t *testing.T) {
	client := server(t)
	for name, c := range map[string]struct {
		rule  limiter.Rule
		later time.Duration
		left  int64 // after a refund of 3 that late
	}{
		"bucket at once":  {perSecond(10, 10), 0, 10},
		"bucket half":     {perSecond(10, 10), 150 * ms, 10},
		"bucket too late": {perSecond(10, 10), 300 * ms, 10},
		"window":          {limiter.FixedWindow{Limit: 10, Period: time.Second}, 900 * ms, 10},
		"next window":     {limiter.FixedWindow{Limit: 10, Period: time.Second}, 1100 * ms, 10},
		"next minute":     {limiter.FixedWindow{Limit: 10, Calendar: limiter.EveryMinute}, time.Minute, 10},
		"ring":            {limiter.SlidingWindow{Limit: 10, Window: time.Second, Buckets: 10}, 900 * ms, 10},
		"ring too late":   {limiter.SlidingWindow{Limit: 10, Window: time.Second, Buckets: 10}, 1500 * ms, 10},
		"log":             {limiter.SlidingLog{Limit: 10, Window: time.Second}, 900 * ms, 10},
		"log too late":    {limiter.SlidingLog{Limit: 10, Window: time.Second}, 1000 * ms, 10},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, client.FlushAll(t.Context()).Err())
			f := newFixture(t, client, c.rule)
			r := f.take(3)
			f.at(c.later)
			if c.later >= 300*ms {
				f.take(4) // by somebody else, who keeps it
				c.left -= 4
			}
			require.NoError(t, f.Refund(t.Context(), "k", &r, 3))
			require.Equal(t, c.left, f.peek().Remaining)
		})
	}
}

// 3 taken, given back, 10 taken, and the first 3 expire: the log of a well-known limiter lets 13 through in a tenth of a second.
func TestLogIsExactAfterARefund(t *testing.T) {
	f := newFixture(t, server(t), limiter.SlidingLog{Limit: 10, Window: time.Second})
	r := f.take(3)
	require.NoError(t, f.Refund(t.Context(), "k", &r, 3))
	f.at(900 * ms)
	require.True(t, f.take(10).Allowed)
	f.at(1000 * ms)
	require.False(t, f.take(1).Allowed)
	f.at(1900 * ms)
	require.True(t, f.take(10).Allowed)
}

// A call takes no longer because a full window expired, and the log does not grow beyond what a window holds for long.
func TestLogStaysSmall(t *testing.T) {
	client := server(t)
	f := newFixture(t, client, limiter.SlidingLog{Limit: 1000, Window: time.Second})
	key := f.keys("k")[0]
	for range 1000 {
		_, err := f.Take(t.Context(), "k", 1)
		require.NoError(t, err)
	}
	f.at(2 * time.Second)
	for i := range 40 {
		f.take(1)
		require.LessOrEqual(t, client.ZCard(t.Context(), key).Val(), int64(max(1000-63*i, 50)))
	}
	require.Equal(t, int64(960), f.peek().Remaining)
}

func TestKeysOfALimitAreInOneSlot(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(servers), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	l := newLimit(t, client, Options{Rules: []limiter.Rule{
		perSecond(1, 5), limiter.FixedWindow{Limit: 4, Calendar: limiter.EveryMonth},
		limiter.SlidingWindow{Limit: 3, Window: time.Hour}, limiter.SlidingLog{Limit: 2, Window: time.Hour},
	}})
	all := map[int64]bool{}
	for _, key := range []string{"a", "b", "c", "", "}", "{x}", "x}{y", "tenant 7", "\x00\xff"} {
		var last Result
		for i := range 3 {
			r, err := l.Take(t.Context(), key, 1)
			require.NoError(t, err)
			require.NoError(t, r.Err, "key %q", key)
			if require.Equal(t, i < 2, r.Allowed); r.Allowed {
				last = r
			}
		}
		require.NoError(t, l.Refund(t.Context(), key, &last, 1))
		slots := map[int64]bool{}
		for _, k := range l.keys(key) {
			slots[client.ClusterKeySlot(t.Context(), k).Val()] = true
			require.Positive(t, client.PTTL(t.Context(), k).Val())
		}
		require.Len(t, slots, 1, "key %q", key)
		maps.Copy(all, slots)
		require.NoError(t, l.Reset(t.Context(), key))
	}
	require.Greater(t, len(all), 5, "keys are spread over slots")
}

func TestRulesThatCannotBeRight(t *testing.T) {
	var large int64 = 1<<52 + 1 // no constant: it is too large for an int of 32 bits
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	for want, rule := range map[string]limiter.Rule{
		"Rules[0]: must be set, got nil": nil,
		"Rules[0]: a limiter.WarmUp cannot be shared: must be a limiter.Bucket, FixedWindow, SlidingWindow or SlidingLog": limiter.WarmUp{Rate: limiter.Per(1, 1)},
		"Rules[0]: a limiter.Shaper cannot be shared":                                                      limiter.Shaper{Rate: limiter.Per(1, 1)},
		"Rules[0]: a limiter.Queue cannot be shared":                                                       limiter.Queue{Limit: 1, MaxQueue: 1},
		"Rules[0]: a limiter.Concurrency is not for a Limit: a lock.Semaphore bounds how many run at once": limiter.Concurrency{Limit: 1},
		"Rules[0]: limiter: Bucket: Rate.Per must be positive, got 0s":                                     limiter.Bucket{},
		"Rules[0]: token bucket: Rate.Tokens must be in 1..2^52/1000, got 0":                               limiter.Bucket{Rate: limiter.Per(0, 1), Burst: 1},
		"Rules[0]: limiter: Bucket: Burst of 9223372036854775807 tokens is too much at a rate of 1 per 1s": perSecond(1, math.MaxInt),
		"Rules[0]: token bucket: Burst of 3663 tokens is too much at a rate of 1 per 24h0m0s":              limiter.Bucket{Rate: limiter.Per(1, 24*time.Hour), Burst: 3653 + 10},
		"Rules[0]: limiter: Bucket: Burst must be at least 1, got -1":                                      perSecond(1, -1),
		"Rules[0]: limiter: FixedWindow: Limit must be in 1..2^53, got 0":                                  limiter.FixedWindow{Period: 1},
		"Rules[0]: fixed window: Limit must be at most 2^52, got 4503599627370497":                         limiter.FixedWindow{Limit: int(large), Period: time.Second},
		"Rules[0]: fixed window: window must be in 1ms..87840h0m0s, got 1ns":                               limiter.FixedWindow{Limit: 1, Period: 1},
		"Rules[0]: sliding log: Limit must be at most 100000, got 100001":                                  limiter.SlidingLog{Limit: 100_001, Window: time.Second},
		"Rules[0]: limiter: FixedWindow: either Period or Calendar must be set, got 0s and 0":              limiter.FixedWindow{Limit: 1},
		"Rules[0]: limiter: Bucket: Name must be printable ASCII":                                          limiter.Bucket{Rate: limiter.Per(1, 1), Name: "ü"},
	} {
		_, err := New(&Options{Client: client, Rules: []limiter.Rule{rule}, Fallback: cluster.AllowAll})
		require.ErrorContains(t, err, "exact: "+want)
	}
}

func TestLimitOptionsThatCannotBeRight(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	good := Options{Client: client, Rules: []limiter.Rule{perSecond(1, 1)}, Nodes: 3}
	for want, change := range map[string]func(*Options){
		"Rules must be 1..8, got 0":                                        func(o *Options) { o.Rules = nil },
		"Rules must be 1..8, got 9":                                        func(o *Options) { o.Rules = make([]limiter.Rule, 9) },
		"Fallback must be Divide, AllowAll or RefuseAll, got hold":         func(o *Options) { o.Fallback = cluster.HoldLease },
		"Fallback must be Divide, AllowAll or RefuseAll, got Fallback(77)": func(o *Options) { o.Fallback = 77 },
		"Nodes must be set":                                                func(o *Options) { o.Nodes = 0 },
		"Nodes must be in 1..65536, got -1":                                func(o *Options) { o.Nodes = -1 },
		"Nodes must be in 1..65536, got 65537":                             func(o *Options) { o.Nodes = maxNodes + 1 },
		"CacheSize must be in 1..16777216, got -1":                         func(o *Options) { o.CacheSize = -1 },
		"CacheTTL must not be negative, got -1ns":                          func(o *Options) { o.CacheTTL = -1 },
		"Name must be printable ASCII without any of {}:, got":             func(o *Options) { o.Name = "a:b" },
		"Name must be printable ASCII without any of {}:, go":              func(o *Options) { o.Name = "\x7f" },
		"Prefix must be printable ASCII without any of {}, go":             func(o *Options) { o.Prefix = "{" },
		"Rules must be one rule without a calendar if Stored is set, got 2": func(o *Options) {
			o.Stored, o.Rules = true, []limiter.Rule{perSecond(1, 1), perSecond(2, 2)}
		},
		"Timeout must be in 1ms..1m0s, got 1ns": func(o *Options) { o.Timeout = 1 },
		"Client must be set, got nil":           func(o *Options) { o.Client = nil },
	} {
		o := good
		change(&o)
		_, err := New(&o)
		require.ErrorContains(t, err, "exact: "+want)
	}
	_, err := New(nil)
	require.Error(t, err)
	_, err = New(&good)
	require.NoError(t, err)
}

func TestRuleTellsWhatItIs(t *testing.T) {
	r := of(limiter.Bucket{Rate: limiter.Per(100, time.Second), Burst: 20})
	require.Equal(t, "token bucket: 100 per 1s, at most 20 at once", r.String())
	require.Equal(t, 200*ms, r.span())
	require.Equal(t, r, of(&limiter.Bucket{Rate: limiter.Per(100, time.Second), Burst: 20, Name: "token bucket"}))
	d := of(limiter.FixedWindow{Limit: 3, Calendar: limiter.EveryDay, Name: "daily"})
	require.Equal(t, "daily: 3 in 24h0m0s", d.String())
	require.Equal(t, int64(7), of(limiter.Bucket{Rate: limiter.Per(7, time.Minute)}).limit)
}

// Rules returns what New got, with the defaults of package limiter.
func TestRules(t *testing.T) {
	given := []limiter.Rule{
		limiter.Bucket{Rate: limiter.Per(5, time.Second)}, limiter.FixedWindow{Limit: 3, Calendar: limiter.EveryDay},
		limiter.SlidingWindow{Limit: 4, Window: time.Hour}, limiter.SlidingLog{Limit: 2, Window: time.Hour, Name: "log"},
	}
	l := newLimit(t, deadRedis(t), Options{Rules: given})
	for i, r := range l.Rules() {
		require.Equal(t, spillway.Must(limiter.New(given[i])).Rule(), r)
	}
	require.NoError(t, l.Tune(l.Rules()...))
	require.Empty(t, new(Limit).Rules())
}

// A share of a rate is as many tokens in as much time; if they cannot be divided, the same tokens in more time.
func TestDivideARate(t *testing.T) {
	for _, c := range []struct {
		tokens int
		want   limiter.Rate
	}{{6, limiter.Per(2, time.Second)}, {7, limiter.Per(7, 3*time.Second)}} {
		bucket, ok := of(limiter.Bucket{Rate: limiter.Per(c.tokens, time.Second), Burst: 30}).local(3).(limiter.Bucket)
		require.True(t, ok)
		require.Equal(t, c.want, bucket.Rate)
		require.Equal(t, 10, bucket.Burst)
	}
}
