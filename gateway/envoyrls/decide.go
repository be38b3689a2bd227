package envoyrls

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/limiter"
)

// maxClaims is the greatest number of descriptors of a request, which [exact.TakeAll] takes at once.
const maxClaims = 64

// counts are what became of the descriptors of a rule.
type counts struct{ ok, over, shadowed atomic.Int64 }

// A claim is one limit that a request asks for, for one or more descriptors.
type claim struct {
	rule   *rule
	counts *counts
	key    string
	cost   uint64 // 0 only asks

	state  limiter.State
	over   bool          // this limit refuses
	wait   time.Duration // until the cost may be available; 0 if that is unknown or never
	ticket spillway.Ticket
}

// A query is a request on its way.
type query struct {
	of     []int // the claim of each descriptor; unlimitedRule, or noRule
	claims []claim
	room   [8]claim
}

// These stand for claims of descriptors that have none.
const (
	noRule        = -1
	unlimitedRule = -2
)

// ShouldRateLimit decides about a request of Envoy. Its errors have the codes InvalidArgument, which names the field and the value,
// Unavailable if Redis does not answer and the fallback refuses, and that of the context.
func (s *Service) ShouldRateLimit(ctx context.Context, in *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	q := &query{}
	if err := s.readRequest(q, in); err != nil {
		return nil, err
	}
	if err := s.decide(ctx, q.claims); err != nil {
		s.failed.Add(1)
		return nil, asStatus(ctx, err)
	}
	return s.answer(q), nil
}

func asStatus(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, errLost):
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

var errLost = errors.New("envoyrls: Redis does not answer")

// readRequest finds the claims of a request.
func (s *Service) readRequest(q *query, in *ratelimitv3.RateLimitRequest) error {
	descriptors := in.GetDescriptors()
	switch {
	case in.GetDomain() == "":
		return status.Error(codes.InvalidArgument, `envoyrls: domain: must be set, got ""`)
	case len(descriptors) < 1 || len(descriptors) > maxClaims:
		return status.Errorf(codes.InvalidArgument, "envoyrls: descriptors: must be 1..%d, got %d", maxClaims, len(descriptors))
	}
	q.of, q.claims = make([]int, len(descriptors)), q.room[:0]
	c := s.config.Load()
	d := c.domains[in.GetDomain()]
	var room [256]byte
	for i, descriptor := range descriptors {
		q.of[i] = noRule
		if d == nil {
			continue
		}
		r, key := d.find(descriptor.GetEntries(), room[:0])
		if own := descriptor.GetLimit(); own != nil {
			var err error
			if r, key, err = s.ownRule(d.name, i, descriptor, own, room[:0]); err != nil {
				return err
			}
		}
		switch {
		case r == nil:
		case r.unlimited:
			q.of[i] = unlimitedRule
			r.counts.ok.Add(1)
			q.claims = append(q.claims, claim{rule: r}) // for its replaces
		default:
			q.add(c, r, key, i, costOf(in, descriptor))
		}
	}
	q.replace()
	for _, i := range q.of {
		if i == noRule {
			s.unknown.Add(1)
		}
	}
	return nil
}

// ownRule returns the rule of a limit that Envoy sent with descriptor i.
func (s *Service) ownRule(
	name string, i int, descriptor *commonv3.RateLimitDescriptor, own *commonv3.RateLimitDescriptor_RateLimitOverride, key []byte,
) (*rule, []byte, error) {
	entries := descriptor.GetEntries()
	unit := unitOf(own.GetUnit())
	switch {
	case len(entries) < 1 || len(entries) > maxDepth:
		return nil, nil, status.Errorf(codes.InvalidArgument, "envoyrls: descriptors[%d].entries: must be 1..%d beside a limit, got %d",
			i, maxDepth, len(entries))
	case lengthOf(unit) == 0:
		return nil, nil, status.Errorf(codes.InvalidArgument, "envoyrls: descriptors[%d].limit.unit: must be one of SECOND to YEAR, got %v",
			i, own.GetUnit())
	}
	r, err := s.limits.override(exactID{domain: name, unit: unit, perUnit: own.GetRequestsPerUnit(), own: true})
	if err != nil {
		return nil, nil, status.Errorf(codes.InvalidArgument, "envoyrls: descriptors[%d].limit: %v", i, err)
	}
	for _, e := range entries {
		key = appendEntry(key, e.GetKey(), e.GetValue())
	}
	return r, key, nil
}

// costOf returns the tokens of a descriptor: its own hits_addend, which may be 0, or that of the request, where 0 means 1.
func costOf(in *ratelimitv3.RateLimitRequest, d *commonv3.RateLimitDescriptor) uint64 {
	if own := d.GetHitsAddend(); own != nil {
		return own.GetValue()
	}
	return uint64(max(in.GetHitsAddend(), 1))
}

// add adds descriptor i to the claims. Descriptors with the same limit and key share a claim, with the sum of their costs.
func (q *query) add(c *config, r *rule, key []byte, i int, cost uint64) {
	for j := range q.claims {
		if have := &q.claims[j]; have.rule == r && have.key == string(key) && !r.unlimited {
			if have.cost += cost; have.cost < cost {
				have.cost = math.MaxUint64
			}
			q.of[i] = j
			return
		}
	}
	q.of[i] = len(q.claims)
	q.claims = append(q.claims, claim{rule: r, counts: r.counts, key: string(key), cost: cost})
	if r.counts == nil { // a limit that Envoy sent
		q.claims[q.of[i]].counts = c.own[r.domain]
	}
}

// replace drops the claims that another claim replaces, and those without a limit.
func (q *query) replace() {
	var gone [maxClaims]bool
	some := false
	for i := range q.claims {
		r := q.claims[i].rule
		gone[i] = r.unlimited || r.name != "" && q.replaces(r.name)
		some = some || gone[i]
	}
	if !some {
		return
	}
	var to [maxClaims]int
	kept := make([]claim, 0, len(q.claims))
	for i := range q.claims {
		if to[i] = noRule; !gone[i] {
			to[i] = len(kept)
			kept = append(kept, q.claims[i])
		}
	}
	for i, j := range q.of {
		if j >= 0 {
			q.of[i] = to[j]
		}
	}
	q.claims = kept
}

// replaces reports whether a claim replaces the rules of that name.
func (q *query) replaces(name string) bool {
	for i := range q.claims {
		if slices.Contains(q.claims[i].rule.replaces, name) {
			return true
		}
	}
	return false
}

// decide asks the limits of all claims, and writes their answers into them.
func (s *Service) decide(ctx context.Context, claims []claim) error {
	began := time.Now()
	var exacts, leases, asks, shadows []*claim
	refused := false
	var room [4 * 8]*claim
	exacts, leases, asks, shadows = room[0:0:8], room[8:8:16], room[16:16:24], room[24:24:32]
	for i := range claims {
		c := &claims[i]
		switch r := c.rule; {
		case r.shadow:
			shadows = append(shadows, c)
		case c.impossible():
			c.over, refused = true, true
			c.state = c.known()
		case c.cost == 0:
			asks = append(asks, c)
		case r.limit.lease != nil:
			leases = append(leases, c)
		default:
			exacts = append(exacts, c)
		}
	}
	if !refused {
		if err := s.each(ctx, asks); err != nil {
			return err
		}
		refused = slices.ContainsFunc(asks, func(c *claim) bool { return c.over })
	}
	switch {
	case refused:
		for _, c := range slices.Concat(exacts, leases) {
			c.state = c.known()
		}
	default:
		ok, err := s.take(ctx, leases, exacts)
		if err != nil {
			return err
		}
		refused = !ok
	}
	if refused {
		for _, c := range shadows {
			c.state = c.known()
		}
		return nil
	}
	if len(shadows) == 0 {
		return nil
	}
	// Shadows have the time that the others left of one call, so that they do not make the answer late.
	short, cancel := context.WithDeadline(ctx, began.Add(s.o.Timeout))
	defer cancel()
	_ = s.each(short, shadows) // a shadow refuses nothing
	return ctx.Err()
}

// impossible reports whether the cost can never pass.
func (c *claim) impossible() bool { return c.rule.perUnit == 0 || c.cost > uint64(c.rule.perUnit) }

func (c *claim) request() spillway.Request { return spillway.Request{Key: c.key, Cost: int(c.cost)} }

// known returns the state of a limit as far as it is known here.
func (c *claim) known() limiter.State {
	var quota spillway.Quota
	switch r := c.rule; {
	case r.limit.exact != nil:
		quota = r.limit.exact.Quota(time.Now(), spillway.Request{Key: c.key})
	case r.limit.lease != nil:
		quota = r.limit.lease.Quota(time.Now(), spillway.Request{Key: c.key})
	default: // it refuses everything
		return limiter.State{FullIn: lengthOf(r.unit)}
	}
	st := limiter.State{Limit: quota.Limit, Remaining: quota.Remaining, NextIn: quota.Reset, FullIn: quota.Reset}
	if c.rule.limit.lease != nil && quota.Limit > 0 {
		st.FullIn = time.Duration(float64(quota.Limit-quota.Remaining) / float64(quota.Limit) * float64(lengthOf(c.rule.unit)))
	}
	return st
}

// each asks each claim by itself, all of them at the same time.
func (s *Service) each(ctx context.Context, claims []*claim) error {
	if len(claims) < 2 {
		for _, c := range claims {
			return s.one(ctx, c)
		}
		return nil
	}
	errs := make([]error, len(claims))
	var wg sync.WaitGroup
	for i, c := range claims {
		wg.Go(func() { errs[i] = s.one(ctx, c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// one asks for a claim alone.
func (s *Service) one(ctx context.Context, c *claim) error {
	var err error
	switch l := c.rule.limit; {
	case c.impossible():
		c.over, c.state = true, c.known()
	case l.lease != nil && c.cost == 0:
		c.state = c.known()
		c.over, c.wait = c.state.Remaining < 1, c.state.NextIn
	case l.lease != nil:
		_, err = s.takeLeases(ctx, []*claim{c})
	default:
		var res exact.Result
		if res, err = l.exact.Take(ctx, c.key, int(c.cost)); err == nil {
			err = s.learn(c, &res)
		}
	}
	if err != nil {
		c.state = c.known()
	}
	return err
}

// learn writes the answer of an exact limit into a claim.
func (s *Service) learn(c *claim, r *exact.Result) error {
	switch {
	case r.Err != nil:
		s.unanswered.Add(1)
	case r.Source == cluster.FromRedis && r.Limit > 0:
		s.answered.Add(1)
	}
	if r.Limit == 0 { // the answer does not mention this claim
		c.state = c.known()
		return nil
	}
	c.state = r.State
	if !r.Allowed {
		c.over = r.RetryAfter > 0 || r.Remaining < int64(max(c.cost, 1))
		c.wait = r.RetryAfter
		if r.Source == cluster.FromNobody {
			return errLost
		}
	}
	return nil
}

// take takes the tokens of all claims or of none, and reports which.
func (s *Service) take(ctx context.Context, leases, exacts []*claim) (bool, error) {
	ok, err := s.takeLeases(ctx, leases)
	if ok && len(exacts) > 0 {
		if ok, err = s.takeExacts(ctx, exacts); !ok {
			giveBack(leases) //nolint:contextcheck // it takes no longer than the timeout of a lease
		}
	} else if !ok {
		for _, c := range exacts {
			c.state = c.known()
		}
	}
	return ok, err
}

func giveBack(leases []*claim) {
	for _, c := range leases {
		c.rule.limit.lease.Done(c.request(), c.ticket, spillway.Result{Outcome: spillway.Refused})
	}
}

func (s *Service) takeLeases(ctx context.Context, claims []*claim) (bool, error) {
	for i, c := range claims {
		var err error
		c.ticket, err = c.rule.limit.lease.Admit(ctx, c.request())
		if err == nil {
			continue
		}
		giveBack(claims[:i]) //nolint:contextcheck // it takes no longer than the timeout of a lease
		for _, c := range claims {
			c.state = c.known()
		}
		rejection := spillway.RejectionOf(err)
		switch {
		case rejection == nil:
			return false, err
		case !rejection.OverQuota:
			return false, errLost
		}
		c.over, c.wait = true, rejection.RetryAfter
		return false, nil
	}
	for _, c := range claims {
		c.state = c.known()
	}
	return true, nil
}

func (s *Service) takeExacts(ctx context.Context, claims []*claim) (bool, error) {
	var room [8]exact.Claim
	list := room[:0]
	for _, c := range claims {
		list = append(list, exact.Claim{Limit: c.rule.limit.exact, Key: c.key, Cost: int(c.cost)})
	}
	results, err := exact.TakeAll(ctx, list...)
	if err != nil {
		return false, err
	}
	ok, over := true, false
	for i := range results {
		if e := s.learn(claims[i], &results[i]); e != nil {
			err = e
		}
		ok = ok && results[i].Allowed
		over = over || claims[i].over
	}
	if !ok && !over && err == nil { // a limit refused without saying when it will not
		claims[0].over = true
	}
	return ok, err
}
