package envoyrls

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/url"
	"sync"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/cluster/lease"
	"github.com/spillway-go/spillway/limiter"
)

type unitOf = ratelimitv3.RateLimitResponse_RateLimit_Unit

const (
	second = ratelimitv3.RateLimitResponse_RateLimit_SECOND
	minute = ratelimitv3.RateLimitResponse_RateLimit_MINUTE
	hour   = ratelimitv3.RateLimitResponse_RateLimit_HOUR
	day    = ratelimitv3.RateLimitResponse_RateLimit_DAY
	week   = ratelimitv3.RateLimitResponse_RateLimit_WEEK
	month  = ratelimitv3.RateLimitResponse_RateLimit_MONTH
	year   = ratelimitv3.RateLimitResponse_RateLimit_YEAR
)

// lengthOf returns the length of a unit; that of a month is 30 days.
func lengthOf(u unitOf) time.Duration {
	const oneDay = 24 * time.Hour
	switch u {
	case second:
		return time.Second
	case minute:
		return time.Minute
	case hour:
		return time.Hour
	case day:
		return oneDay
	case week:
		return 7 * oneDay
	case month:
		return 30 * oneDay
	case year:
		return 365 * oneDay
	}
	return 0
}

// windowOf returns the window of n tokens for each unit.
func windowOf(u unitOf, n uint32) limiter.FixedWindow {
	w := limiter.FixedWindow{Limit: int(n)}
	switch u {
	case minute:
		w.Calendar = limiter.EveryMinute
	case hour:
		w.Calendar = limiter.EveryHour
	case day:
		w.Calendar = limiter.EveryDay
	case month:
		w.Calendar = limiter.EveryMonth
	default:
		w.Period = lengthOf(u)
	}
	return w
}

// A limit is where the tokens of a rule are: in exact or in lease, or in none if the rule is unlimited or refuses everything.
type limit struct {
	exact *exact.Limit
	lease *lease.Limit
}

// An exactID names what an exact limit depends on. All rules of a domain with the same numbers share one, with different keys.
type exactID struct {
	domain  string
	unit    unitOf
	perUnit uint32
	own     bool // sent by Envoy
}

// A ruleID names a rule of a file.
type ruleID struct {
	domain, path string
	unit         unitOf
}

const (
	cachedKeys   = 4096 // whose last answer an exact limit keeps
	maxExacts    = 4096 // each takes about 90 KB
	maxOverrides = 256  // limits sent by Envoy that are kept; a further one displaces another, which costs only its cached answers
)

// limits are the limits in use.
type limits struct {
	o      *Options
	exacts map[exactID]*exact.Limit
	leases map[ruleID]*lease.Limit

	mu        sync.Mutex
	overrides map[exactID]*rule // guarded by mu
}

// slotOf returns a name for the domain without braces and colons.
func slotOf(domain string) string { return "rls." + short(url.QueryEscape(domain)) }

// short returns a text of at most 64 bytes for it.
func short(text string) string {
	if len(text) <= 64 {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// newExact returns the limit. The error names the invalid field.
func (l *limits) newExact(id exactID) (*exact.Limit, error) {
	if uint64(id.perUnit) > math.MaxInt {
		return nil, fmt.Errorf("requests_per_unit: must be at most %d on this system, got %d", math.MaxInt, id.perUnit)
	}
	name, cached := id.unit.String(), cachedKeys
	if id.own {
		name, cached = fmt.Sprintf("%s.own.%d", name, id.perUnit), cachedKeys/16
	}
	return exact.New(&exact.Options{
		Client: l.o.Client, Rules: []limiter.Rule{windowOf(id.unit, id.perUnit)},
		Name: name, Prefix: l.o.Prefix, Slot: slotOf(id.domain),
		Fallback: l.o.Fallback, Nodes: l.o.Nodes, Timeout: l.o.Timeout, CacheSize: cached,
	})
}

func (l *limits) newLease(id ruleID, perUnit uint32) (*lease.Limit, error) {
	return lease.New(&lease.Options{
		Client: l.o.Client, Rule: bucketOf(id.unit, perUnit),
		Name:   slotOf(id.domain) + "." + id.unit.String() + "." + short(url.QueryEscape(id.path)),
		Prefix: l.o.Prefix, Fallback: l.o.Fallback, Nodes: l.o.Nodes, Timeout: l.o.Timeout,
	})
}

func bucketOf(u unitOf, n uint32) limiter.Bucket {
	return limiter.Bucket{Rate: limiter.Per(int(n), lengthOf(u)), Burst: int(n), Name: "rate"}
}

// leased reports whether a rule is decided without Redis.
func (l *limits) leased(r *rule) bool {
	if l.o.LeaseFrom == (limiter.Rate{}) || r.unit != second && r.unit != minute || uint64(r.perUnit) > math.MaxInt32 {
		return false
	}
	return limiter.Per(int(r.perUnit), lengthOf(r.unit)).Compare(l.o.LeaseFrom) >= 0
}

// A change has the limits of new files.
type change struct {
	exacts map[exactID]*exact.Limit
	leases map[ruleID]*lease.Limit
	made   []*lease.Limit                  // those of leases that are new
	tunes  map[*lease.Limit]limiter.Bucket // those that get another rate
}

// prepare gives the rules of new files their limits, from those in use as far as they fit. It changes no limit in use.
func (l *limits) prepare(rules []*rule) (*change, error) {
	c := &change{map[exactID]*exact.Limit{}, map[ruleID]*lease.Limit{}, nil, map[*lease.Limit]limiter.Bucket{}}
	for _, r := range rules {
		var err error
		switch {
		case r.unlimited || r.perUnit == 0:
		case l.leased(r):
			err = l.prepareLease(c, r)
		default:
			err = l.prepareExact(c, r)
		}
		if err != nil {
			for _, q := range c.made {
				q.Close()
			}
			return nil, fmt.Errorf("domain %q: rule %q: %w", r.domain, r.path, err)
		}
	}
	return c, nil
}

func (l *limits) prepareExact(c *change, r *rule) (err error) {
	id := exactID{domain: r.domain, unit: r.unit, perUnit: r.perUnit}
	e := cmp.Or(c.exacts[id], l.exacts[id])
	switch {
	case e == nil && len(c.exacts) >= maxExacts:
		return fmt.Errorf("requests_per_unit: all files may have %d different limits, got another: %d per %v", maxExacts, id.perUnit, id.unit)
	case e == nil:
		if e, err = l.newExact(id); err != nil {
			return err
		}
	}
	c.exacts[id], r.limit.exact = e, e
	return nil
}

func (l *limits) prepareLease(c *change, r *rule) (err error) {
	id := ruleID{r.domain, r.path, r.unit}
	q, bucket := l.leases[id], bucketOf(r.unit, r.perUnit)
	switch {
	case q == nil:
		if q, err = l.newLease(id, r.perUnit); err != nil {
			return err
		}
		c.made = append(c.made, q)
	case q.Rule().Rate != bucket.Rate:
		if _, err = q.Check(bucket); err != nil {
			return err
		}
		c.tunes[q] = bucket
	}
	c.leases[id], r.limit.lease = q, q
	return nil
}

// commit puts a change in force, when its rules are.
func (l *limits) commit(c *change) {
	for q, bucket := range c.tunes {
		_ = q.Tune(bucket) // Check has passed
	}
	old := l.leases
	l.exacts, l.leases = c.exacts, c.leases
	for id, q := range old {
		if c.leases[id] == nil {
			q.Close()
		}
	}
}

// close ends all leases.
func (l *limits) close() {
	var wg sync.WaitGroup
	for _, q := range l.leases {
		wg.Go(q.Close)
	}
	wg.Wait()
}

// override returns the rule for a limit that Envoy sent.
func (l *limits) override(id exactID) (*rule, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.overrides[id]; r != nil {
		return r, nil
	}
	r := &rule{domain: id.domain, path: ownLimit, title: "own limit", perUnit: id.perUnit, unit: id.unit, shadow: l.o.DryRun}
	if r.perUnit > 0 {
		var err error
		if r.limit.exact, err = l.newExact(id); err != nil {
			return nil, err
		}
	}
	r.current = currentOf(r)
	if len(l.overrides) >= maxOverrides {
		for other := range l.overrides {
			delete(l.overrides, other)
			break
		}
	}
	l.overrides[id] = r
	return r, nil
}

// ownLimit is the name of limits that Envoy sent. No path of a rule begins with "=".
const ownLimit = "=sent by Envoy"
