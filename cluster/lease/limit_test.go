package lease

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/race"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/cluster/lease/internal/machine"
	"github.com/spillway-go/spillway/limiter"
)

func admit(q *Limit, key string) error {
	_, err := q.Admit(context.Background(), spillway.Request{Key: key, Arrived: time.Now()})
	return err
}

// until asks until ok holds, since what happens in the background has no time of its own.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 10*time.Second, 2*time.Millisecond, what)
}

// leased returns a quota whose key "k" is leased.
func leased(t *testing.T, o Options) *Limit {
	t.Helper()
	o.Interval = minInterval
	q := newQuota(t, o)
	awaitLease(t, q, "k")
	return q
}

func awaitLease(t *testing.T, q *Limit, key string) {
	t.Helper()
	until(t, "a lease", func() bool {
		_ = admit(q, key)
		st, ok := q.KeyStats(key)
		return ok && st.Source == cluster.FromLease && st.Grant > 0
	})
}

func TestLimitOptions(t *testing.T) {
	client := clientOf(t, "127.0.0.1:1")
	good := Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(10, time.Second)}, Nodes: 2}
	for want, change := range map[string]func(*Options){
		"lease: Client must be set, got nil":                                                  func(o *Options) { o.Client = nil },
		"lease: Rule: Rate.Tokens must be in 1..2^52/1000, got 0":                             func(o *Options) { o.Rule.Rate.Tokens = 0 },
		"lease: Rule: limiter: Bucket: Rate.Per must be positive, got 0s":                     func(o *Options) { o.Rule.Rate.Per = 0 },
		"lease: Rule: limiter: Bucket: Burst must be at least 1, got -1":                      func(o *Options) { o.Rule.Burst = -1 },
		"lease: Weight must be in 1e-6..1e6, got NaN":                                         func(o *Options) { o.Weight = math.NaN() },
		"lease: Weight must be in 1e-6..1e6, got 2e+06":                                       func(o *Options) { o.Weight = 2e6 },
		"lease: Weight must be in 1e-6..1e6, got -1":                                          func(o *Options) { o.Weight = -1 },
		"lease: Interval must be in 50ms..1m0s, got 1ms":                                      func(o *Options) { o.Interval = time.Millisecond },
		"lease: TTL must be in 3 intervals..1h, got 100ms":                                    func(o *Options) { o.TTL = 100 * time.Millisecond },
		"lease: Reclaim must be in 0..1h, got -1ns":                                           func(o *Options) { o.Reclaim = -1 },
		"lease: Fallback must be HoldLease, Divide, AllowAll or RefuseAll, got Fallback(200)": func(o *Options) { o.Fallback = 200 },
		"lease: Grace must be in 0..87840h0m0s, got -1ns":                                     func(o *Options) { o.Grace = -1 },
		"lease: Nodes must be set to share the rate when Redis is lost, or Fallback be AllowAll or RefuseAll, got 0": func(o *Options) {
			o.Nodes = 0
		},
		"lease: Nodes must be in 1..65536, got -1":                          func(o *Options) { o.Nodes = -1 },
		"lease: MaxKeys must be in 1..16777216, got -1":                     func(o *Options) { o.MaxKeys = -1 },
		"lease: Timeout must be in 1ms..1m0s, got 1ns":                      func(o *Options) { o.Timeout = 1 },
		`lease: Name must be printable ASCII without any of {}:, got "a{b"`: func(o *Options) { o.Name = "a{b" },
		`lease: Prefix must be printable ASCII without any of {}, got "\n"`: func(o *Options) { o.Prefix = "\n" },
	} {
		o := good
		change(&o)
		_, err := New(&o)
		require.EqualError(t, err, want)
	}
	_, err := New(nil)
	require.Error(t, err)
	require.ErrorIs(t, admit(new(Limit), "k"), spillway.ErrRejected)
}

// The first requests of a key are decided in Redis, the others here; an idle key is forgotten, and its lease given back.
func TestLimitLeasesWhatIsUsed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("SET", "spillway:quota:leases", 1) // it has been in use
	q := newQuota(t, Options{Client: clientOf(t, s.Addr()), Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second)}, Interval: minInterval})
	r, err := q.Take(context.Background(), "k", 3)
	require.NoError(t, err)
	require.True(t, r.Allowed)
	require.Equal(t, cluster.FromRedis, r.Source)
	require.EqualValues(t, 997, r.Remaining)
	awaitLease(t, q, "k")
	r, err = q.Take(context.Background(), "k", 1)
	require.NoError(t, err)
	require.Equal(t, cluster.FromLease, r.Source)
	require.Len(t, entriesOf(t, s), 1)
	require.EqualValues(t, 1, q.Stats().Leased)
	before := q.Stats()
	until(t, "the key to be forgotten", func() bool { return q.Stats().Keys == 0 })
	until(t, "the lease to be given back", func() bool { return len(entriesOf(t, s)) == 0 })
	require.Equal(t, before.AdmittedTokens, q.Stats().AdmittedTokens, "what was counted stays")
}

// A limit of few tokens is never leased, and is exact.
func TestLimitSmallLimitIsExact(t *testing.T) {
	s := redistest.Start(t)
	client := clientOf(t, s.Addr())
	var quotas []*Limit
	for range 3 {
		quotas = append(quotas, newQuota(t, Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(6, time.Minute), Burst: 6}}))
	}
	admitted := 0
	for i := range 60 {
		if admit(quotas[i%3], "k") == nil {
			admitted++
		}
	}
	require.Equal(t, 6, admitted)
	err := admit(quotas[0], "k")
	var rej *spillway.Rejection
	require.ErrorAs(t, err, &rej)
	require.True(t, rej.OverQuota)
	require.InDelta(t, 10, rej.RetryAfter.Seconds(), 2)
	require.Empty(t, entriesOf(t, s))
}

func TestLimitCosts(t *testing.T) {
	s := redistest.Start(t)
	q := leased(t, Options{Client: clientOf(t, s.Addr()), Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second), Burst: 50}})
	ctx := context.Background()
	for cost, reason := range map[int]string{-1: "cost is negative", 51: "cost exceeds limit"} {
		_, err := q.Admit(ctx, spillway.Request{Key: "k", Cost: cost, Arrived: time.Now()})
		var rej *spillway.Rejection
		require.ErrorAs(t, err, &rej)
		require.Equal(t, reason, rej.Reason)
		_, err = q.Take(ctx, "k", cost)
		var ce *limiter.CostError
		require.ErrorAs(t, err, &ce)
	}
	r, err := q.Take(ctx, "k", 0)
	require.NoError(t, err)
	require.True(t, r.Allowed)
}

// What a later policy refused is given back, wherever it was taken.
func TestLimitGivesBack(t *testing.T) {
	s := redistest.Start(t)
	client := clientOf(t, s.Addr())
	refuse := func(q *Limit, times int) (admitted int) {
		for range times {
			r := spillway.Request{Key: "k", Arrived: time.Now()}
			if ticket, err := q.Admit(context.Background(), r); err == nil {
				admitted++
				q.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
			}
		}
		return admitted
	}
	require.Equal(t, 30, refuse(newQuota(t, Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(3, time.Hour)}, Name: "few"}), 30))
	q := leased(t, Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second), Burst: 20}})
	time.Sleep(50 * time.Millisecond) // fills the bucket; a real server keeps real time
	require.Equal(t, 2000, refuse(q, 2000))
}

// A wall clock that is off by an hour, or steps, changes nothing.
func TestLimitIgnoresWallClocks(t *testing.T) {
	s := redistest.Start(t)
	q := leased(t, Options{Client: clientOf(t, s.Addr()), Rule: limiter.Bucket{Rate: limiter.Per(100, time.Second), Burst: 10}})
	admitted, begin := 0, time.Now()
	var source cluster.Source
	for i := 0; ; i++ {
		wall := time.Now().Round(0).Add([]time.Duration{0, time.Hour, -time.Hour}[i%3])
		if _, err := q.Admit(context.Background(), spillway.Request{Key: "k", Arrived: wall}); err == nil {
			admitted++
		}
		took := time.Since(begin)
		st, _ := q.KeyStats("k")
		source = st.Source
		if took > 300*time.Millisecond && admitted >= 15 && source == cluster.FromLease || took > 10*time.Second {
			break // a busy machine needs more time than the first
		}
	}
	require.LessOrEqual(t, float64(admitted), 12+100*time.Since(begin).Seconds())
	require.GreaterOrEqual(t, admitted, 15)
	require.Equal(t, cluster.FromLease, source)
}

// When Redis never answers, a process that has no lease goes by Fallback.
func TestLimitWithoutRedis(t *testing.T) {
	for loss, want := range map[cluster.Fallback]cluster.Source{cluster.HoldLease: cluster.FromDivide, cluster.Divide: cluster.FromDivide, cluster.AllowAll: cluster.FromNobody, cluster.RefuseAll: cluster.FromNobody} {
		q := newQuota(t, Options{
			Client: clientOf(t, "127.0.0.1:1"), Rule: limiter.Bucket{Rate: limiter.Per(80, time.Second)}, Fallback: loss, Nodes: 8, Timeout: 20 * time.Millisecond,
		})
		admitted, asked := 0, int64(50)
		for range asked {
			r, err := q.Take(context.Background(), "k", 1)
			require.NoError(t, err)
			require.Equal(t, want, r.Source)
			require.ErrorAs(t, r.Err, new(*cluster.RedisError))
			if r.Allowed {
				admitted++
			}
		}
		switch loss {
		case cluster.AllowAll:
			require.Equal(t, 50, admitted)
		case cluster.RefuseAll:
			require.Zero(t, admitted)
			var rej *spillway.Rejection
			require.ErrorAs(t, admit(q, "k"), &rej)
			require.Equal(t, "redis unavailable", rej.Reason)
			require.False(t, rej.OverQuota)
			asked++
		default:
			require.InDelta(t, 11, admitted, 4) // an eighth of 80 at once
		}
		require.Equal(t, asked, q.Stats().Unanswered)
	}
}

func TestLimitContext(t *testing.T) {
	s := redistest.Start(t)
	q := newQuota(t, Options{Client: clientOf(t, s.Addr()), Rule: limiter.Bucket{Rate: limiter.Per(3, time.Hour)}})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := q.Admit(ctx, spillway.Request{Key: "k", Arrived: time.Now()})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, spillway.ErrRejected)
}

// Keys beyond MaxKeys are decided in Redis, and each by itself. All requests of a IgnoreKey count together.
func TestLimitKeys(t *testing.T) {
	s := redistest.Start(t)
	client := clientOf(t, s.Addr())
	few := newQuota(t, Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(2, time.Hour)}, MaxKeys: 1})
	for _, key := range []string{"a", "b", "c", "c}", ""} {
		require.NoError(t, admit(few, key))
		require.NoError(t, admit(few, key))
		require.ErrorIs(t, admit(few, key), spillway.ErrRejected)
	}
	require.EqualValues(t, 1, few.Stats().Keys)
	require.EqualValues(t, 1, few.Stats().Nodes)
	require.EqualValues(t, 10, few.Stats().AdmittedTokens)
	require.EqualValues(t, 5, few.Stats().RefusedTokens)
	whole := newQuota(t, Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(2, time.Hour)}, IgnoreKey: true, Name: "whole"})
	require.NoError(t, admit(whole, "a"))
	require.NoError(t, admit(whole, "b"))
	require.Error(t, admit(whole, "c"))
}

// After Close a Limit goes on in Redis.
func TestLimitClose(t *testing.T) {
	s := redistest.Start(t)
	q := leased(t, Options{Client: clientOf(t, s.Addr()), Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second)}})
	q.Close()
	q.Close()
	require.Empty(t, entriesOf(t, s))
	r, err := q.Take(context.Background(), "k", 1)
	require.NoError(t, err)
	require.Equal(t, cluster.FromRedis, r.Source)
}

func TestLimitForHeaders(t *testing.T) {
	s := redistest.Start(t)
	q := leased(t, Options{Client: clientOf(t, s.Addr()), Rule: limiter.Bucket{Rate: limiter.Per(100, time.Second), Burst: 50}, Name: "api"})
	left := q.Quota(time.Now(), spillway.Request{Key: "k"})
	require.Equal(t, "api", left.Name)
	require.EqualValues(t, 50, left.Limit)
	require.LessOrEqual(t, left.Remaining, left.Limit)
	require.Equal(t, 500*time.Millisecond, left.Window)
	require.LessOrEqual(t, left.Reset, left.Window)
	left = q.Quota(time.Now(), spillway.Request{Key: "nobody"})
	require.EqualValues(t, 50, left.Limit)
	require.Equal(t, left.Limit, left.Remaining)
	require.Zero(t, left.Reset)
}

// The next token comes as fast as this process's part of the rate has it, not the rate of all.
func TestQuotaForHeadersAreOfThePartOfThisProcess(t *testing.T) {
	s := redistest.Start(t)
	o := Options{Client: clientOf(t, s.Addr()), Rule: limiter.Bucket{Rate: limiter.Per(100, time.Second), Burst: 50}}
	q, other := leased(t, o), leased(t, o)
	until(t, "half of the rate", func() bool {
		for range 20 {
			_, _ = admit(q, "k"), admit(other, "k")
		}
		left := q.Quota(time.Now(), spillway.Request{Key: "k"})
		return left.Remaining < left.Limit && left.Reset > 15*time.Millisecond
	})
}

func TestLimitDecisionsDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: allocations are not counted under the race detector")
	}
	s := redistest.Start(t)
	q := leased(t, Options{Client: clientOf(t, s.Addr()), Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second), Burst: 10}})
	ctx, r := context.Background(), spillway.Request{Key: "k", Arrived: time.Now()}
	require.Zero(t, testing.AllocsPerRun(5000, func() {
		r.Arrived = time.Now()
		if ticket, err := q.Admit(ctx, r); err == nil {
			q.Done(r, ticket, spillway.Result{Outcome: spillway.Success})
		}
	}))
}

// p99 returns how long all but one in a hundred decisions take at most.
func p99(q *Limit, n int) time.Duration {
	took := make([]time.Duration, n)
	ctx := context.Background()
	for i := range took {
		begin := time.Now()
		_, _ = q.Admit(ctx, spillway.Request{Key: "k", Arrived: begin})
		took[i] = time.Since(begin)
		if i%1000 == 0 {
			time.Sleep(time.Millisecond) // lets the background in
		}
	}
	slices.Sort(took)
	return took[n*99/100]
}

// Whether Redis answers, is slow or is gone: who holds a lease does not notice.
func TestLimitTailWithoutRedis(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	q := leased(t, Options{Client: clientOf(t, p.Addr()), Rule: limiter.Bucket{Rate: limiter.Per(100_000, time.Second)}})
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"up", func() {}},
		{"1 ms", func() { p.SetLatency(time.Millisecond) }},
		{"20 ms", func() { p.SetLatency(20 * time.Millisecond) }},
		{"200 ms", func() { p.SetLatency(200 * time.Millisecond) }},
		{"black hole", func() { p.BlackHole(true) }},
		{"SIGSTOP", func() { p.Heal(); s.Pause() }},
		{"dead", s.Kill},
	} {
		c.do()
		const most = 100 * time.Microsecond
		got := time.Hour
		for attempt := 0; attempt < attempts && got >= most; attempt++ { // a busy machine delays many decisions in some of them
			got = p99(q, 100_000)
			t.Logf("%s: p99 of a decision %v", c.name, got)
		}
		require.Less(t, got, most, c.name)
	}
}

// On a cluster, the table and the marker of a key are in one slot.
func TestLimitOnCluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	q := newQuota(t, Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second)}, Interval: minInterval})
	for _, key := range []string{"a", "b", "c", "d", "x}y", ""} {
		awaitLease(t, q, key)
		k := q.known(key)
		slot := func(name string) int64 { return nodes[0].Client().ClusterKeySlot(context.Background(), name).Val() }
		require.Equal(t, slot(k.names[0]), slot(k.names[1]))
	}
	require.Less(t, q.Stats().Failures, q.Stats().Syncs/2+1, "some, on a machine that is busy")
}

// A long key is kept by its hash, here and in Redis.
func TestLimitLongKeys(t *testing.T) {
	client := clientOf(t, redistest.Start(t).Addr())
	q := newQuota(t, Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second)}, Fallback: cluster.RefuseAll, Timeout: 5 * time.Second})
	long := string(make([]byte, 10_000))
	_, err := q.Take(t.Context(), long, 1)
	require.NoError(t, err)
	keys := client.Keys(t.Context(), "*").Val()
	require.NotEmpty(t, keys)
	for _, key := range keys {
		require.Less(t, len(key), 200)
	}
	require.NotNil(t, q.keys.find(call.ShortKey(long)))
}

// A key gets a lease when it is asked for enough tokens in an interval, or asked so fast that it will be; also for fewer if
// it ran dry. It gets none if the share of one process is too small.
func TestLimitPromotes(t *testing.T) {
	const enough = worthwhile
	for name, c := range map[string]struct {
		limit       float64 // tokens per interval
		nodes       int64
		asked, rate float64
		dry, want   bool
	}{
		"enough":                  {limit: enough, asked: enough, want: true},
		"too few":                 {limit: enough, asked: enough - 1},
		"few, but fast":           {limit: enough, asked: 1, rate: 10 * enough, want: true},
		"few, and not so fast":    {limit: enough, asked: 1, rate: 10*enough - 1},
		"few, after it ran dry":   {limit: enough, asked: 1, dry: true, want: true},
		"none, after it ran dry":  {limit: enough, dry: true},
		"limit too small":         {limit: enough - 1, asked: enough, want: false},
		"share too small":         {limit: 2*enough - 1, nodes: 2, asked: enough},
		"a share that is enough":  {limit: 2 * enough, nodes: 2, asked: enough, want: true},
		"nodes are not yet known": {limit: enough, nodes: 0, asked: enough, want: true},
	} {
		q := &Limit{}
		q.nodes.Store(c.nodes)
		set := &ruleSet{cfg: machine.Config{Rate: 10 * c.limit, Interval: 100 * time.Millisecond}}
		k := &keyState{set: set, rate: c.rate}
		k.dry.Store(c.dry)
		require.Equal(t, c.want, (&loop{q: q}).promotes(k, c.asked), name)
		require.False(t, k.dry.Load(), name)
	}
}

func TestReplyOfANegativeGrantIsInvalid(t *testing.T) {
	reply := func(grant, gift string) any {
		return []any{int64(1), "e", grant, "1", gift, int64(0), int64(0), int64(1), "1"}
	}
	_, err := readSync(reply("1", "1"))
	require.NoError(t, err)
	for _, bad := range [][2]string{{"-1", "0"}, {"0", "-1"}, {"NaN", "0"}} {
		_, err = readSync(reply(bad[0], bad[1]))
		redistest.RequireReason(t, err, "script failed")
	}
}

func TestLimitDefaults(t *testing.T) {
	o := Options{Rule: limiter.Bucket{Rate: limiter.Per(7, time.Second)}, Nodes: 1}
	require.NoError(t, o.complete())
	require.InDelta(t, 1, o.Weight, 0)
	require.Equal(t, 7, o.Rule.Burst)
	require.Equal(t, 3*o.Interval, o.TTL)
}

// Tokens that a Quota took without Redis come back when a later policy refuses.
func TestLimitGivesBackWithoutRedis(t *testing.T) {
	q := newQuota(t, Options{
		Client: clientOf(t, "127.0.0.1:1"), Rule: limiter.Bucket{Rate: limiter.Per(2, time.Hour)}, Nodes: 1, Fallback: cluster.Divide,
	})
	request := func() spillway.Request { return spillway.Request{Key: "k", Arrived: time.Now()} }
	r := request()
	ticket, err := q.Admit(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, admit(q, "k"))
	for range 3 {
		require.ErrorIs(t, admit(q, "k"), spillway.ErrRejected)
		q.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
		r = request()
		ticket, err = q.Admit(t.Context(), r)
		require.NoError(t, err)
	}
}
