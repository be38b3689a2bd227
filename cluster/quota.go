package cluster

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster/internal/lease"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/stats"
)

// A Quota is a rate per key for all processes together, and each process decides about it locally. It leases a part of
// the rate from Redis for a moment, and renews the lease a few times per second in the background. A decision takes
// well under a microsecond and makes no call.
//
// Parts are fair. A process gets at most its demand, and no process that wants more gets less than another (weighted
// max-min fairness, by water-filling). Together they never exceed the rate: at most Rate × d + Burst + the largest cost
// × the number of processes pass in any time d. That holds when messages are lost, late or repeated, when processes
// die, and however long Redis is away. While a Redis that lost its memory learns the leases, newcomers get a twentieth
// of Rate and Burst on top. Fallback decides when Redis stays silent for longer than a lease lasts. [Quota.Tune]
// changes the rate while it runs.
//
// Rarely used keys, and limits of less than two tokens per process and Interval, are not leased. Each of their requests
// takes unleased tokens in Redis, in one round trip, as with a [Limit]. Keys change over by themselves, in both
// directions. So a Quota is a [spillway.Queuer]: its Admit blocks for up to Timeout at the first requests of a key, but
// never for a leased key.
//
// It is made by [NewQuota] and owns one goroutine, which ends with [Quota.Close]; the zero Quota denies everything.
// All methods may be called concurrently.
type Quota struct {
	limit  atomic.Pointer[quotaLimit]
	name   string
	shared bool
	id     string
	opts   QuotaOptions // as given to NewQuota
	conn   *conn        // for requests
	sync   *conn        // for the background
	script *script
	names  keyNames
	base   time.Time
	keys   quotaTable
	late   *quotaKey // for keys without a place in the table
	reject *rejections
	lost   *rejections
	nodes  atomic.Int64 // as far as known
	tally  quotaTally
	fresh  freshKeys
	quit   chan struct{}
	closed sync.Once
	loop   sync.WaitGroup
	rounds *leaseLoop
}

// QuotaOptions tune a [Quota]. Client, Rule and Nodes are required, but not Nodes if Fallback is AllowAll or RefuseAll.
type QuotaOptions struct {
	// Client connects to Redis: a single server, a failover pair or a cluster. The caller closes it, after the Quota.
	Client redis.UniversalClient
	// Rule is the limit of each key for all processes together. Rate.Tokens must be positive. Each process has the same
	// part of Burst as of Rate. Tokens that a process cannot use within Burst divided by Rate are lost, so less than 50 ms
	// worth of tokens costs throughput on busy machines. If the Name of the Rule is empty, rejections, metrics and header
	// fields have that of the QuotaOptions.
	Rule limiter.Bucket
	// Name tells this limit from others in the same Redis. Processes that share a limit have the same Name, Prefix, Rule,
	// Interval and TTL. It may not contain braces or colons. If Name is empty, it is "quota".
	Name string
	// Prefix begins the name of every key in Redis. It may not contain braces. If Prefix is empty, it is "spillway".
	Prefix string
	// IgnoreKey applies one limit to all requests, whatever their Key.
	IgnoreKey bool
	// Weight is the share of this process, compared with others, when the rate is not enough for all. If Weight is 0,
	// it is 1.
	Weight float64

	// Interval is how often a lease is renewed, at least 50 ms and at most 1 min. If Interval is 0, it is 200 ms.
	Interval time.Duration
	// TTL is how long a lease lasts, at least 3 times the Interval. If TTL is 0, it is 3 times the Interval.
	TTL time.Duration
	// Reclaim is how much longer than its term the lease of a vanished process stays reserved. With at least Grace, a
	// process that keeps a lease without contact to Redis never uses a part of the rate that others were granted. If
	// Reclaim is 0, others get it when the term is over.
	Reclaim time.Duration

	// Fallback decides while Redis does not answer. If Fallback is 0, it is HoldLease.
	Fallback Fallback
	// Grace is how long HoldLease keeps the last grant. If Grace is 0, it is 30 s.
	Grace time.Duration
	// Nodes is the number of processes that divide the rate, at most 65536, until Redis has reported their number.
	Nodes int
	// Timeout is how long a request may wait for Redis, at least 1 ms and at most 1 min. If Timeout is 0, it is 100 ms.
	Timeout time.Duration
	// Breaker tunes the breakers that block calls to a Redis that does not answer, as in [LimitOptions]. The breaker of
	// the background stays open for at most an eighth of the TTL.
	Breaker *breaker.Options
	// MaxKeys is the greatest number of keys that are kept, each in some 700 bytes, at most 2^24. Redis decides further
	// keys, one request at a time. If MaxKeys is 0, it is 65536.
	MaxKeys int
}

const (
	defaultInterval = 200 * time.Millisecond
	minInterval     = 50 * time.Millisecond
	defaultGrace    = 30 * time.Second
	defaultQuota    = 1 << 16
	maxQuotaKeys    = 1 << 24
)

// NewQuota returns a Quota without asking Redis. The error names the invalid field.
func NewQuota(o *QuotaOptions) (*Quota, error) {
	var opts QuotaOptions
	if o != nil {
		opts = *o
	}
	if err := opts.complete(); err != nil {
		return nil, err
	}
	q := &Quota{
		opts: opts, name: opts.Rule.Name, shared: opts.IgnoreKey, id: newNodeID(), script: newScript(clockLua, leaseLua),
		names: newKeyNames(&opts), base: time.Now(), quit: make(chan struct{}),
		reject: newRejections(opts.Rule.Name, limiter.ReasonRate, true), lost: newRejections(opts.Rule.Name, ReasonUnavailable, false),
	}
	var err error
	if q.conn, err = newConn(connOptions{kind: "Quota", client: opts.Client, timeout: opts.Timeout, breaker: opts.Breaker}); err != nil {
		return nil, err
	}
	set := q.setLimit(&opts)
	if q.sync, err = newConn(opts.background(set.cfg.Timeout)); err != nil {
		return nil, err
	}
	q.nodes.Store(int64(set.cfg.Nodes))
	q.keys.make(opts.MaxKeys)
	q.fresh.wake = make(chan struct{}, 1)
	q.late = q.newKey("")
	q.rounds = newLeaseLoop(q)
	q.loop.Go(q.rounds.run)
	return q, nil
}

// complete fills in the defaults and validates.
func (o *QuotaOptions) complete() error {
	o.Name, o.Prefix = orDefault(o.Name, "quota"), orDefault(o.Prefix, "spillway")
	o.Weight = cmp.Or(o.Weight, 1)
	o.Interval = cmp.Or(o.Interval, defaultInterval)
	o.TTL = cmp.Or(o.TTL, 3*o.Interval)
	o.Fallback = cmp.Or(o.Fallback, HoldLease)
	o.Grace = cmp.Or(o.Grace, defaultGrace)
	o.MaxKeys = cmp.Or(o.MaxKeys, defaultQuota)
	if err := o.completeRule(); err != nil {
		return fmt.Errorf("cluster: Quota: Rule: %w", err)
	}
	return o.validate()
}

func (o *QuotaOptions) completeRule() error {
	o.Rule.Name = orDefault(o.Rule.Name, o.Name)
	l, err := limiter.New(o.Rule)
	if err != nil {
		return err
	}
	o.Rule, _ = l.Rule().(limiter.Bucket)
	if t := o.Rule.Rate.Tokens; t < 1 || int64(t) > maxTokens/1000 {
		return fmt.Errorf("Rate.Tokens must be in 1..2^52/1000, got %d", t)
	}
	if int64(o.Rule.Burst) > maxTokens/1000 {
		return fmt.Errorf("Burst must be in 1..2^52/1000, got %d", o.Rule.Burst)
	}
	return nil
}

func (o *QuotaOptions) validate() error {
	switch {
	case !(o.Weight >= 1e-6 && o.Weight <= 1e6):
		return fmt.Errorf("cluster: Quota: Weight must be in 1e-6..1e6, got %v", o.Weight)
	case o.Interval < minInterval || o.Interval > maxTimeout:
		return fmt.Errorf("cluster: Quota: Interval must be in %v..%v, got %v", minInterval, maxTimeout, o.Interval)
	case o.TTL < 3*o.Interval || o.TTL > time.Hour:
		return fmt.Errorf("cluster: Quota: TTL must be in 3 intervals..1h, got %v", o.TTL)
	case o.Reclaim < 0 || o.Reclaim > time.Hour:
		return fmt.Errorf("cluster: Quota: Reclaim must be in 0..1h, got %v", o.Reclaim)
	case o.Fallback > RefuseAll:
		return fmt.Errorf("cluster: Quota: Fallback must be HoldLease, Divide, AllowAll or RefuseAll, got %v", o.Fallback)
	case o.Grace < 0 || o.Grace > maxMemory:
		return fmt.Errorf("cluster: Quota: Grace must be in 0..%v, got %v", maxMemory, o.Grace)
	case o.Nodes == 0 && o.Fallback <= Divide:
		return errors.New("cluster: Quota: Nodes must be set to share the rate when Redis is lost, or Fallback be AllowAll or RefuseAll, got 0")
	case o.Nodes < 0 || o.Nodes > maxNodes:
		return fmt.Errorf("cluster: Quota: Nodes must be in 1..%d, got %d", maxNodes, o.Nodes)
	case o.MaxKeys < 1 || o.MaxKeys > maxQuotaKeys:
		return fmt.Errorf("cluster: Quota: MaxKeys must be in 1..%d, got %d", maxQuotaKeys, o.MaxKeys)
	}
	return o.validateNames()
}

// validateNames checks the names that become part of keys and of metrics.
func (o *QuotaOptions) validateNames() error {
	odd := func(without string) func(rune) bool {
		return func(c rune) bool { return c < ' ' || c > '~' || strings.ContainsRune(without, c) }
	}
	switch {
	case strings.ContainsFunc(o.Name, odd("{}:")):
		return fmt.Errorf("cluster: Quota: Name must be printable ASCII without any of {}:, got %q", o.Name)
	case strings.ContainsFunc(o.Prefix, odd("{}")):
		return fmt.Errorf("cluster: Quota: Prefix must be printable ASCII without any of {}, got %q", o.Prefix)
	}
	return nil
}

// config returns the figures for the state machines.
func (o *QuotaOptions) config() lease.Config {
	loss := map[Fallback]lease.Loss{HoldLease: lease.Hold, Divide: lease.Share, AllowAll: lease.Open, RefuseAll: lease.Closed}
	return lease.Config{
		Rate: float64(o.Rule.Rate.Tokens) / o.Rule.Rate.Per.Seconds(), Burst: float64(o.Rule.Burst), Interval: o.Interval, TTL: o.TTL,
		Reclaim: o.Reclaim, Timeout: min(max(o.Interval*3/2, DefaultTimeout), o.TTL/2), Grace: o.Grace, Loss: loss[o.Fallback], Weight: o.Weight,
		Nodes: max(o.Nodes, 1),
	}
}

// background returns the options of the background connection. No caller waits there, and leases delay their own
// renewals while they fail. After a loss of memory, Redis has to hear from the holder of a lease before it grants that
// lease to others. So this breaker stays open for an eighth of a term at most. With a call that gets no answer (half a
// term) and the pause after that (a quarter), Redis hears from each process within a term.
func (o *QuotaOptions) background(timeout time.Duration) connOptions {
	b := defaultBreaker()
	if o.Breaker != nil {
		*b = *o.Breaker
	}
	most := o.TTL / 8
	b.OpenFor, b.MaxOpen = min(cmp.Or(b.OpenFor, most), most), most
	return connOptions{kind: "Quota", client: o.Client, timeout: timeout, breaker: b}
}

// newNodeID returns 128 random bits: a restarted process inherits nothing.
func newNodeID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// Close returns all leases and ends the goroutine. It takes up to one and a half intervals if Redis does not answer.
// After that, Redis decides each request of the Quota. Closing twice does nothing.
func (q *Quota) Close() {
	q.closed.Do(func() {
		if q.quit != nil { // nil in the zero Quota
			close(q.quit)
		}
	})
	q.loop.Wait()
}

// now returns the time since the quota was made, by the monotonic clock.
func (q *Quota) now() time.Duration { return time.Since(q.base) }

// at returns the time of a request. A time without a monotonic reading comes from a wall clock, which may be off by
// hours, or is made up. Then the clock of this process counts.
func (q *Quota) at(t time.Time) time.Duration {
	if t == t.Round(0) { //nolint:staticcheck // equal only if there is no monotonic reading to strip
		return q.now()
	}
	return min(max(t.Sub(q.base), 0), math.MaxInt64>>8)
}

// A quotaTally counts, for all keys together, the events that are not counted per key.
type quotaTally struct {
	direct, lost, syncs, failures stats.Counter
	offered, refused              stats.Counter // counts of forgotten keys
}
