package exact

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/reason"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/limiter"
)

// The parts of the script of a Limit. A Limit sends those that its rules need.
var (
	//go:embed scripts/wrong.lua
	limitWrongLua string
	//go:embed scripts/bucket.lua
	limitBucketLua string
	//go:embed scripts/window.lua
	limitWindowLua string
	//go:embed scripts/ring.lua
	limitRingLua string
	//go:embed scripts/log.lua
	limitLogLua string
	//go:embed scripts/main.lua
	limitMainLua string
	//go:embed scripts/fast.lua
	limitFastLua string
	//go:embed scripts/stored.lua
	limitStoredLua string
	//go:embed scripts/set.lua
	limitSetLua string
)

// A Limit enforces one or more rules for all processes together, per key: 10 per second and 1000 per day for every
// tenant, for example, on any number of servers. It asks Redis for every decision, in one round trip and one atomic
// step. It caches refusals until the time that Redis named. Only the clock of Redis decides.
//
// It is exact, and suits up to a few thousand requests per second and key. For more, and for
// decisions without a round trip, use a lease.Limit.
//
// Admit blocks for a round trip: up to Options.Timeout, or the deadline
// of its context if that is sooner. When Redis does not answer, Fallback decides, and after a few such calls Redis is
// left alone for a while. It is made by [New], owns no goroutine and needs no Close. All methods may be called
// concurrently. The zero Limit denies everything.
type Limit struct {
	conn      *call.Conn
	taking    *call.Script // takes tokens
	giving    *call.Script // gives them back
	set       atomic.Pointer[ruleSet]
	name      string
	prefix    string // of the keys in Redis, with the slot
	slot      string
	client    string // that the limit is for, or ""
	stored    bool
	keepAlive time.Duration
	cacheTTL  time.Duration
	memory    *memory
	clock     serverClock
	loss      standby
	refusals  []*rejections.Set // one for each rule
	lost      *rejections.Set
	counts    limitCounts

	mu    sync.Mutex
	turns map[string]*turn // of the callers of Wait; guarded by mu
}

// Options tune a [Limit]. Client and Rules are required, and either Nodes or Fallback.
type Options struct {
	// Client connects to Redis: a single server, a failover pair or a cluster. Its retries do not matter: a command
	// that may have run is not sent again. The caller closes it.
	Client redis.UniversalClient
	// Rules are the limits of each key, at most 8. A call takes its cost from all of them, or from none. Each is a
	// [limiter.Bucket], which takes 24 bytes of Redis for each key besides the key; a [limiter.FixedWindow], 16 bytes; a
	// [limiter.SlidingWindow], 8 bytes for each sub-window; or a [limiter.SlidingLog] with a Limit of at most 100000, up
	// to 110 bytes for each token of the limit. The bounds of package limiter apply, but no window is shorter than 1 ms
	// or longer than ten years.
	Rules []limiter.Rule
	// Name identifies this limit in Redis. Limits with the same Name and Prefix share their keys, and must
	// have the same rules. It may not contain braces or colons. If Name is empty, it is "limit".
	Name string
	// Prefix begins the name of every key in Redis. It may not contain braces. If Prefix is empty, it is "spillway".
	Prefix string
	// Slot, if it is set, puts all keys of all limits with this Slot into one slot of a Redis Cluster, so that [TakeAll]
	// can take them together there. One server then carries the load of all of them. It may not contain braces or colons.
	Slot string

	// Fallback decides while Redis does not answer. If Fallback is 0, it is Divide.
	Fallback cluster.Fallback
	// Nodes is the number of processes that divide the limit when they [cluster.Divide] it, at most 65536.
	Nodes int
	// Timeout is the longest time that a call of Redis may take, at least 1 ms and at most 1 min. If Timeout is 0, it is 100
	// ms.
	Timeout time.Duration
	// Breaker tunes the breaker that blocks calls to a Redis that does not answer. If Breaker is nil, 5 calls in a row
	// without an answer open it for 250 ms, and for up to 4 s if the outage continues. If its Name is empty, it is "redis".
	Breaker *breaker.Options

	// CacheSize is the number of keys whose last answer is cached, so that a flood of refused requests costs Redis
	// nothing, and headers can be written. Each takes about 200 bytes. If CacheSize is 0, it is 16384.
	CacheSize int
	// CacheTTL is the time after which Redis is asked again about a refused key, however long the refusal lasts. Tokens
	// that other processes give back, resets and new rules are noticed within that time. A long CacheTTL saves calls in
	// a flood of requests that stay refused for long. If CacheTTL is 0, it is one second.
	CacheTTL time.Duration

	// PerClient, if it is set, gives the client with this name, such as a host, its own limit for each key: every client gets
	// the whole limit. If PerClient is empty, all clients share the limit.
	PerClient string
	// Stored makes each key follow the rule that [Limit.SetRule] keeps for it in Redis, if there is one. Every process
	// reads it with each call of Redis; a process that remembers a refusal uses it for up to CacheTTL. There must be
	// exactly one Rule, without a calendar. It is the rule of all other keys, and sets the kind of all stored rules.
	Stored bool
	// KeepAlive is how long a stored rule stays after its last use. If KeepAlive is 0, it is 30 days.
	KeepAlive time.Duration
}

const (
	maxRules         = 8
	maxKeys          = 1 << 24
	defaultKeys      = 1 << 16
	maxNodes         = 1 << 16
	maxCache         = 1 << 24
	defaultCacheSize = 1 << 14

	defaultKeepAlive = 30 * 24 * time.Hour
	defaultCacheTTL  = time.Second
)

// New returns a Limit without asking Redis. The error names the invalid field.
func New(o *Options) (*Limit, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.Name, opts.Prefix = cmp.Or(opts.Name, "limit"), cmp.Or(opts.Prefix, "spillway")
	opts.Fallback = cmp.Or(opts.Fallback, cluster.Divide)
	opts.CacheSize = cmp.Or(opts.CacheSize, defaultCacheSize)
	opts.KeepAlive = cmp.Or(opts.KeepAlive, defaultKeepAlive)
	opts.CacheTTL = cmp.Or(opts.CacheTTL, defaultCacheTTL)
	if err := opts.validate(); err != nil {
		return nil, err
	}
	rules, err := rulesOf("", opts.Rules)
	if err != nil {
		return nil, err
	}
	if opts.Stored && rules[0].kind == calendarKind {
		return nil, fmt.Errorf("exact: Rules must be one rule without a calendar if Stored is set, got %q", rules[0].String())
	}
	c, err := call.New(call.Options{Kind: "exact", Client: opts.Client, Timeout: opts.Timeout, Breaker: opts.Breaker})
	if err != nil {
		return nil, err
	}
	l := &Limit{
		conn: c, taking: limitScript(rules, opts.Stored), giving: limitScript(rules, opts.Stored),
		name: opts.Name, prefix: opts.Prefix + ":", slot: opts.Slot, client: opts.PerClient, stored: opts.Stored, keepAlive: opts.KeepAlive,
		cacheTTL: opts.CacheTTL, memory: newMemory(opts.CacheSize),
		lost: rejections.New(opts.Name, reason.Unavailable, false), turns: make(map[string]*turn),
	}
	if l.slot != "" {
		l.prefix += "{" + l.slot + "}:"
	}
	l.set.Store(newRuleSet(rules))
	if len(rules) == 1 && rules[0].kind == bucketKind && !l.stored {
		l.taking = call.NewScript(call.Clock, limitFastLua)
	}
	for _, r := range rules {
		l.refusals = append(l.refusals, rejections.New(r.name, r.reason(), true))
	}
	if err := l.loss.make(opts.Fallback, opts.Nodes, rules); err != nil {
		return nil, fmt.Errorf("exact: %w", err)
	}
	return l, nil
}

func (o *Options) validate() error {
	switch {
	case len(o.Rules) < 1 || len(o.Rules) > maxRules:
		return fmt.Errorf("exact: Rules must be 1..%d, got %d", maxRules, len(o.Rules))
	case o.Fallback < cluster.Divide || o.Fallback > cluster.RefuseAll:
		return fmt.Errorf("exact: Fallback must be Divide, AllowAll or RefuseAll, got %v", o.Fallback)
	case o.Fallback == cluster.Divide && o.Nodes == 0:
		return errors.New("exact: Nodes must be set to Divide what is left when Redis is lost, or Fallback be AllowAll or RefuseAll, got 0")
	case o.Nodes < 0 || o.Nodes > maxNodes:
		return fmt.Errorf("exact: Nodes must be in 1..%d, got %d", maxNodes, o.Nodes)
	case o.CacheSize < 1 || o.CacheSize > maxCache:
		return fmt.Errorf("exact: CacheSize must be in 1..%d, got %d", maxCache, o.CacheSize)
	case o.Stored && len(o.Rules) != 1:
		return fmt.Errorf("exact: Rules must be one rule without a calendar if Stored is set, got %d", len(o.Rules))
	case o.KeepAlive < 0 || o.KeepAlive > maxMemory:
		return fmt.Errorf("exact: KeepAlive must be in 0..%v, got %v", maxMemory, o.KeepAlive)
	case o.CacheTTL < 0:
		return fmt.Errorf("exact: CacheTTL must not be negative, got %v", o.CacheTTL)
	}
	err := call.ValidateName("Name", o.Name, "{}:")
	if err == nil {
		err = call.ValidateName("Slot", o.Slot, "{}:")
	}
	if err == nil {
		err = call.ValidateName("Prefix", o.Prefix, "{}")
	}
	if err != nil {
		return fmt.Errorf("exact: %w", err)
	}
	return nil
}

// limitScript joins the parts that the rules need.
func limitScript(rules []rule, stored bool) *call.Script {
	parts := []string{call.Clock, limitWrongLua}
	if stored {
		parts = append(parts, limitStoredLua)
	}
	have := map[string]bool{}
	for _, r := range rules {
		part := map[kind]string{
			bucketKind: limitBucketLua, windowKind: limitWindowLua, calendarKind: limitWindowLua,
			ringKind: limitRingLua, logKind: limitLogLua,
		}[r.kind]
		if !have[part] {
			have[part] = true
			parts = append(parts, part)
		}
	}
	return call.NewScript(append(parts, limitMainLua)...)
}

// keys returns the keys of Redis that hold the state of the rules for a key. In a cluster the first part in braces
// selects the slot, so all of them are in one slot.
func (l *Limit) keys(key string) []string {
	key = call.ShortKey(key)
	keys := make([]string, 0, len(l.rules())+1)
	var b strings.Builder
	for i, r := range l.rules() {
		b.Reset()
		b.Grow(len(l.prefix) + len(l.name) + len(key) + 6)
		b.WriteString(l.prefix)
		b.WriteByte('{')
		b.WriteString(l.name)
		b.WriteByte(':')
		b.WriteString(key)
		b.WriteString("}:")
		b.WriteByte(byte(r.kind))
		b.WriteByte('0' + byte(i))
		if l.client != "" {
			b.WriteByte('@')
			b.WriteString(l.client)
		}
		keys = append(keys, b.String())
	}
	if l.stored {
		keys = append(keys, l.prefix+"{"+l.name+":"+key+"}:rule")
	}
	return keys
}
