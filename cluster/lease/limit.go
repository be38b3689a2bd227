package lease

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/reason"
	"github.com/spillway-go/spillway/cluster/lease/internal/machine"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/stats"
)

// A Limit is a rate per key for all processes together, applied by each process locally. It leases a part of the rate from
// Redis for a moment, and renews the lease a few times per second in the background. A decision takes well under a microsecond
// and makes no call.
//
// Parts are fair. A process gets at most its demand, and no process that wants more gets less than another (weighted
// max-min fairness, by water-filling). Together they never exceed the rate: at most Rate × d + Burst + the largest cost
// × the number of processes pass in any time d. That holds when messages are lost, late or repeated, when processes
// die, and however long Redis is away. While a Redis that lost its data learns the leases, newcomers get a twentieth
// of Rate and Burst on top. Fallback decides when Redis stays silent for longer than a lease lasts. [Limit.Tune]
// changes the rate while it runs.
//
// Rarely used keys, and limits of less than two tokens per process and Interval, are not leased. Each of their requests
// takes unleased tokens in Redis, in one round trip, as with an exact.Limit. Keys change over by themselves, in both
// directions. So Admit blocks for up to Timeout at the first requests of a key, but
// never for a leased key.
//
// It is made by [New] and owns one goroutine, which ends with [Limit.Close]; the zero Limit denies everything.
// All methods may be called concurrently.
type Limit struct {
	limit  atomic.Pointer[ruleSet]
	name   string
	shared bool
	id     string
	opts   Options    // as given to New
	conn   *call.Conn // for requests
	sync   *call.Conn // for the background
	script *call.Script
	names  keyNames
	base   time.Time
	keys   table
	late   *keyState // for keys without a place in the table
	reject *rejections.Set
	lost   *rejections.Set
	nodes  atomic.Int64 // as far as known
	tally  tally
	fresh  freshKeys
	quit   chan struct{}
	closed sync.Once
	loop   sync.WaitGroup
	rounds *loop
}

// Options tune a [Limit]. Client, Rule and Nodes are required, but not Nodes if Fallback is AllowAll or RefuseAll.
type Options struct {
	// Client connects to Redis: a single server, a failover pair or a cluster. The caller closes it, after the Limit.
	Client redis.UniversalClient
	// Rule is the limit of each key for all processes together. Rate.Tokens must be positive. Each process has the same
	// part of Burst as of Rate. Tokens that a process cannot use within Burst divided by Rate are lost, so less than 50 ms
	// worth of tokens costs throughput on busy machines. If the Name of the Rule is empty, rejections, metrics and header
	// fields carry the Name below.
	Rule limiter.Bucket
	// Name identifies this limit in Redis. Processes that share a limit have the same Name, Prefix, Rule,
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
	Fallback cluster.Fallback
	// Grace is how long HoldLease keeps the last grant. If Grace is 0, it is 30 s.
	Grace time.Duration
	// Nodes is the number of processes that divide the rate, at most 65536, until Redis has reported their number.
	Nodes int
	// Timeout is how long a request may wait for Redis, at least 1 ms and at most 1 min. If Timeout is 0, it is 100 ms.
	Timeout time.Duration
	// Breaker tunes the breakers that block calls to a Redis that does not answer, as in exact.Options. The breaker for
	// background calls stays open for at most an eighth of the TTL.
	Breaker *breaker.Options
	// MaxKeys is the greatest number of keys that are kept, each in about 700 bytes, at most 2^24. Redis decides further
	// keys, one request at a time. If MaxKeys is 0, it is 65536.
	MaxKeys int
}

const (
	defaultInterval = 200 * time.Millisecond
	maxNodes        = 1 << 16
	maxTokens       = 1 << 52 // the numbers of scripts are exact up to 2^53, and they add two
	maxGrace        = 10 * 366 * 24 * time.Hour
	minInterval     = 50 * time.Millisecond
	defaultGrace    = 30 * time.Second
	defaultKeys     = 1 << 16
	maxKeys         = 1 << 24
)

// New returns a Limit without asking Redis. The error names the invalid field.
func New(o *Options) (*Limit, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	if err := opts.complete(); err != nil {
		return nil, err
	}
	q := &Limit{
		opts: opts, name: opts.Rule.Name, shared: opts.IgnoreKey, id: newNodeID(), script: call.NewScript(call.Clock, leaseLua),
		names: newKeyNames(&opts), base: time.Now(), quit: make(chan struct{}),
		reject: rejections.New(opts.Rule.Name, rejections.Rate, true), lost: rejections.New(opts.Rule.Name, reason.Unavailable, false),
	}
	var err error
	if q.conn, err = call.New(call.Options{Kind: "lease", Client: opts.Client, Timeout: opts.Timeout, Breaker: opts.Breaker}); err != nil {
		return nil, err
	}
	set := q.setLimit(&opts)
	if q.sync, err = call.New(opts.background(set.cfg.Timeout)); err != nil {
		return nil, err
	}
	q.nodes.Store(int64(set.cfg.Nodes))
	q.keys.make(opts.MaxKeys)
	q.fresh.wake = make(chan struct{}, 1)
	q.late = q.newKey("")
	q.rounds = &loop{q: q, set: q.limit.Load()}
	q.loop.Go(q.rounds.run)
	return q, nil
}

// complete fills in the defaults and validates.
func (o *Options) complete() error {
	o.Name, o.Prefix = cmp.Or(o.Name, "quota"), cmp.Or(o.Prefix, "spillway")
	o.Weight = cmp.Or(o.Weight, 1)
	o.Interval = cmp.Or(o.Interval, defaultInterval)
	o.TTL = cmp.Or(o.TTL, 3*o.Interval)
	o.Fallback = cmp.Or(o.Fallback, cluster.HoldLease)
	o.Grace = cmp.Or(o.Grace, defaultGrace)
	o.MaxKeys = cmp.Or(o.MaxKeys, defaultKeys)
	if err := o.completeRule("lease: Rule"); err != nil {
		return err
	}
	return o.validate()
}

// completeRule does the same for the rule. Its errors begin with what.
func (o *Options) completeRule(what string) error {
	o.Rule.Name = cmp.Or(o.Rule.Name, o.Name)
	l, err := limiter.New(o.Rule)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	o.Rule, _ = l.Rule().(limiter.Bucket)
	if t := o.Rule.Rate.Tokens; t < 1 || int64(t) > maxTokens/1000 {
		return fmt.Errorf("%s: Rate.Tokens must be in 1..2^52/1000, got %d", what, t)
	}
	if int64(o.Rule.Burst) > maxTokens/1000 {
		return fmt.Errorf("%s: Burst must be in 1..2^52/1000, got %d", what, o.Rule.Burst)
	}
	return nil
}

func (o *Options) validate() error {
	switch {
	case !(o.Weight >= 1e-6 && o.Weight <= 1e6):
		return fmt.Errorf("lease: Weight must be in 1e-6..1e6, got %v", o.Weight)
	case o.Interval < minInterval || o.Interval > call.MaxTimeout:
		return fmt.Errorf("lease: Interval must be in %v..%v, got %v", minInterval, call.MaxTimeout, o.Interval)
	case o.TTL < 3*o.Interval || o.TTL > time.Hour:
		return fmt.Errorf("lease: TTL must be in 3 intervals..1h, got %v", o.TTL)
	case o.Reclaim < 0 || o.Reclaim > time.Hour:
		return fmt.Errorf("lease: Reclaim must be in 0..1h, got %v", o.Reclaim)
	case o.Fallback > cluster.RefuseAll:
		return fmt.Errorf("lease: Fallback must be HoldLease, Divide, AllowAll or RefuseAll, got %v", o.Fallback)
	case o.Grace < 0 || o.Grace > maxGrace:
		return fmt.Errorf("lease: Grace must be in 0..%v, got %v", maxGrace, o.Grace)
	case o.Nodes == 0 && o.Fallback <= cluster.Divide:
		return errors.New("lease: Nodes must be set to share the rate when Redis is lost, or Fallback be AllowAll or RefuseAll, got 0")
	case o.Nodes < 0 || o.Nodes > maxNodes:
		return fmt.Errorf("lease: Nodes must be in 1..%d, got %d", maxNodes, o.Nodes)
	case o.MaxKeys < 1 || o.MaxKeys > maxKeys:
		return fmt.Errorf("lease: MaxKeys must be in 1..%d, got %d", maxKeys, o.MaxKeys)
	}
	err := call.ValidateName("Name", o.Name, "{}:")
	if err == nil {
		err = call.ValidateName("Prefix", o.Prefix, "{}")
	}
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	return nil
}

// config returns the figures for the state machines.
func (o *Options) config() machine.Config {
	loss := map[cluster.Fallback]machine.Loss{
		cluster.HoldLease: machine.Hold, cluster.Divide: machine.Share, cluster.AllowAll: machine.Open, cluster.RefuseAll: machine.Closed,
	}
	return machine.Config{
		Rate: float64(o.Rule.Rate.Tokens) / o.Rule.Rate.Per.Seconds(), Burst: float64(o.Rule.Burst), Interval: o.Interval, TTL: o.TTL,
		Reclaim: o.Reclaim, Timeout: min(max(o.Interval*3/2, call.DefaultTimeout), o.TTL/2), Grace: o.Grace, Loss: loss[o.Fallback], Weight: o.Weight,
		Nodes: max(o.Nodes, 1),
	}
}

// background returns the options of the background connection. No caller waits there, and leases delay their own
// renewals while they fail. After Redis has lost its data, it has to hear from the holder of a lease before it grants that
// lease to others. So this breaker stays open for at most an eighth of a term. With a call that gets no answer (half a
// term) and the pause after that (a quarter), Redis hears from each process within a term.
func (o *Options) background(timeout time.Duration) call.Options {
	b := call.DefaultBreaker()
	if o.Breaker != nil {
		*b = *o.Breaker
	}
	most := o.TTL / 8
	b.OpenFor, b.MaxOpen = min(cmp.Or(b.OpenFor, most), most), most
	return call.Options{Kind: "lease", Client: o.Client, Timeout: timeout, Breaker: b}
}

// newNodeID returns 128 random bits: a restarted process inherits nothing.
func newNodeID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// Close returns all leases and ends the goroutine. It takes up to one and a half intervals if Redis does not answer.
// After that, Redis decides each request of the Limit. Closing twice does nothing.
func (q *Limit) Close() {
	q.closed.Do(func() {
		if q.quit != nil { // nil in the zero Limit
			close(q.quit)
		}
	})
	q.loop.Wait()
}

// now returns the time since the Limit was made, by the monotonic clock.
func (q *Limit) now() time.Duration { return time.Since(q.base) }

// at returns the time of a request. A time without a monotonic reading comes from a wall clock, which may be off by
// hours, or is made up. Then the clock of this process counts.
func (q *Limit) at(t time.Time) time.Duration {
	if t == t.Round(0) { //nolint:staticcheck // equal only if there is no monotonic reading to strip
		return q.now()
	}
	return min(max(t.Sub(q.base), 0), math.MaxInt64>>8)
}

// A tally counts, for all keys together, the events that are not counted per key.
type tally struct {
	direct, lost, syncs, failures stats.Counter
	offered, refused              stats.Counter // counts of forgotten keys
}
