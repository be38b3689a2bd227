package envoyrls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/rules"
)

// Options tune a [Service]. Client and Config are required, and either Nodes or Fallback.
type Options struct {
	// Client connects to Redis: a single server, a failover pair or a cluster, where each domain is in one slot. The caller closes
	// it, after the Service. Set its MinIdleConns, since a first request that opens a connection may exceed Timeout.
	Client redis.UniversalClient
	// Config has the sources of the files, by their names, which errors and the log show. Each file is for another domain.
	// [rules.File] reads one from disk, and [cluster.Rules] from a key of Redis.
	Config map[string]rules.Source
	// Every is the time between two reads of the files, at least 10 ms. If Every is 0, it is one second.
	Every time.Duration
	// Fallback decides while Redis does not answer. If Fallback is 0, it is [cluster.Divide], and leased rules keep their last
	// lease for 30 s before.
	Fallback cluster.Fallback
	// Nodes is the number of processes that divide the limits then, at most 65536.
	Nodes int
	// Timeout is the longest time that a call of Redis may take, at least 1 ms. It must be shorter than the timeout of Envoy's
	// filter, which is 20 ms by default; a late answer is lost. If Timeout is 0, it is 10 ms.
	Timeout time.Duration
	// LeaseFrom is the rate from which on rules per second and per minute are decided without Redis, by a [lease.Limit]. They
	// are token buckets then: a pause saves up to the tokens of one unit. For about a second after Redis began empty, only a
	// twentieth passes. If LeaseFrom is zero, Redis decides about all.
	LeaseFrom limiter.Rate
	// DryRun makes all rules count as with shadow_mode: no request is refused.
	DryRun bool
	// NoHeaders leaves the fields RateLimit-Policy, RateLimit and Retry-After out of the answers.
	NoHeaders bool
	// Prefix begins the name of every key in Redis. It may not contain braces. If Prefix is empty, it is "spillway".
	Prefix string
	// Logger gets one line when files take effect, are refused or cannot be read, and when Redis is lost and back. If Logger is
	// nil, it is [slog.Default].
	Logger *slog.Logger
}

// A Service answers RateLimitService. It is made by [New] and owns a goroutine, and one for each leased rule, until
// [Service.Close]. All methods may be called concurrently.
type Service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	o      Options
	config atomic.Pointer[config]
	limits limits // overrides may be used at any time; the rest is guarded by reading

	stop  context.CancelFunc
	ended chan struct{}

	reading sync.Mutex // held while files are read and applied
	// Guarded by reading.
	seen    map[string]string  // the last files; nil before the first
	verdict error              // on them
	logged  string             // the last error in the log; empty if all was well since
	closed  bool               // by Close
	counts  map[ruleID]*counts // of the rules in force, so that they survive a reload

	mu     sync.Mutex
	reload reloads // guarded by mu

	unknown, answered, unanswered, failed atomic.Int64
}

// A config is immutable.
type config struct {
	domains map[string]*domain
	rules   []*rule // in the order of domains and files
	own     map[string]*counts
}

// New reads the files and returns a Service, without asking Redis. The error names the invalid option, or is that of a file.
func New(o *Options) (*Service, error) {
	s := &Service{ended: make(chan struct{})}
	if o != nil {
		s.o = *o
	}
	s.o.Every = cmp.Or(s.o.Every, time.Second)
	s.o.Timeout = cmp.Or(s.o.Timeout, 10*time.Millisecond)
	s.limits = limits{o: &s.o, overrides: map[exactID]*rule{}}
	if err := s.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	if err := s.Reload(ctx); err != nil {
		cancel()
		return nil, err
	}
	go s.follow(ctx)
	return s, nil
}

func (s *Service) validate() error {
	o := &s.o
	switch {
	case o.Client == nil:
		return errors.New("envoyrls: Client must be set, got nil")
	case len(o.Config) == 0:
		return errors.New("envoyrls: Config must have a source, got none")
	case o.Every < 10*time.Millisecond:
		return fmt.Errorf("envoyrls: Every must be at least 10ms, got %v", o.Every)
	case o.LeaseFrom != (limiter.Rate{}) && (o.LeaseFrom.Tokens <= 0 || o.LeaseFrom.Per <= 0):
		return fmt.Errorf("envoyrls: LeaseFrom must be positive, got %v", o.LeaseFrom)
	case o.Fallback == cluster.HoldLease:
		return fmt.Errorf("envoyrls: Fallback must be divide, allow all or refuse all, got %v", o.Fallback)
	}
	for _, name := range sorted(o.Config) {
		if o.Config[name] == nil {
			return fmt.Errorf("envoyrls: Config[%q] must be set, got nil", name)
		}
	}
	// The limits check the other options; one of them may be the first of a later reload.
	_, err := s.limits.newExact(exactID{domain: "check", unit: second, perUnit: math.MaxInt32})
	if err != nil {
		return fmt.Errorf("envoyrls: %w", err)
	}
	return nil
}

// Close ends the goroutines of the Service and returns the leases. It is for a Service that gets no more requests. Closing twice
// does nothing.
func (s *Service) Close() {
	s.stop()
	<-s.ended
	s.reading.Lock()
	defer s.reading.Unlock()
	s.closed = true
	s.limits.close()
}

var _ ratelimitv3.RateLimitServiceServer = (*Service)(nil)
