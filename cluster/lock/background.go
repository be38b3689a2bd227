package lock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/reason"
)

const (
	maxReturning = 1 << 16 // permits on their way back; more than that expire by their TTL
	tokensEach   = 100     // tokens in a command

	// A renewal may take a part of the TTL, or Timeout if that is longer: no caller waits for it, and pipelines of many
	// keys queue in Redis. There is time for three renewals without an answer. More than 2 s does not help if an answer
	// is lost.
	renewTries = 6
	maxRenewal = 2 * time.Second
)

// A handBack is a token to give back, until the time at which Redis forgets it by itself.
type handBack struct {
	key, token string
	bury       bool
	until      time.Time
}

// A group is the common part of tokens that one command can give back.
type group struct {
	key  string
	bury bool
}

// callersShare returns how many calls of a Semaphore other than renewals may be in flight: three quarters of the
// connections of the client. The others are reserved for renewals. If the client has a pool for each of many servers,
// it is [maxFlights].
func callersShare(client redis.UniversalClient) int {
	if c, ok := client.(*redis.Client); ok {
		return min(max(c.Options().PoolSize*3/4, 1), call.MaxFlights)
	}
	return call.MaxFlights
}

// renewLoop renews leases when they are due, until Close.
func (s *Semaphore) renewLoop() {
	beat := time.NewTicker(s.ttl / 24)
	defer beat.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-beat.C:
			s.renewDue(time.Now())
		}
	}
}

// renewDue renews the leases that are due, and returns when the calls have ended, with an answer or without.
func (s *Semaphore) renewDue(now time.Time) {
	due := map[kind][]*permit{}
	s.mu.Lock()
	for _, p := range s.permits {
		if p.step(now) == stepRenew {
			k := kind{p.key, p.ctx == nil}
			due[k] = append(due[k], p)
		}
	}
	s.mu.Unlock()
	var renewals []renewal
	for k, permits := range due {
		for part := range slices.Chunk(permits, tokensEach) {
			renewals = append(renewals, renewal{k, part})
		}
	}
	call.Pipelines(renewals, s.renewSome)
}

// A kind is the common part of permits that one command can renew.
type kind struct {
	key     string
	request bool // permits of requests, which take a lease if they have none
}

// A renewal is a group of permits that one command can renew.
type renewal struct {
	kind
	permits []*permit
}

func (s *Semaphore) renewSome(renewals []renewal) {
	commands := make([][]any, len(renewals))
	for i, r := range renewals {
		tokens := make([]string, len(r.permits))
		for j, p := range r.permits {
			tokens[j] = p.token
		}
		commands[i] = s.renewal(r.key, r.request, tokens)
	}
	sent := time.Now()
	replies, errs := s.renewals.RunAll(s.ctx, s.scripts.renew, commands)
	for i, r := range renewals {
		got, err := []int64(nil), errs[i]
		if err == nil {
			got, err = call.Integers(replies[i])
		}
		if err == nil && len(got) != len(r.permits) {
			err = &cluster.RedisError{Reason: reason.Script, Err: fmt.Errorf("want %d integers, got %d", len(r.permits), len(got))}
		}
		if err != nil {
			s.counts.unanswered.Add(1)
		}
		for j, p := range r.permits {
			p.answered(sent, err == nil && got[j] == 1, err)
		}
	}
}

// giveBack releases a permit in the background. It never waits.
func (s *Semaphore) giveBack(r handBack) {
	s.mu.Lock()
	fits := len(s.back) < maxReturning
	if fits {
		s.back = append(s.back, r)
	}
	s.mu.Unlock()
	if !fits {
		s.counts.expiring.Add(1)
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// returnLoop releases permits until Close, and a last time then.
func (s *Semaphore) returnLoop() {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		select {
		case <-s.ctx.Done():
			s.returnAll(context.Background())
			s.mu.Lock()
			s.counts.expiring.Add(int64(len(s.back)))
			s.back = nil
			s.mu.Unlock()
			return
		case <-s.wake:
		case <-retry.C:
		}
		if left := s.returnAll(s.ctx); left > 0 {
			retry.Reset(s.poll)
		}
	}
}

// returnAll sends the queued releases to Redis, and returns how many did not reach it. These are retried later.
func (s *Semaphore) returnAll(ctx context.Context) int {
	s.mu.Lock()
	back := s.back
	s.back, s.going = nil, len(back)
	s.mu.Unlock()
	now := time.Now()
	groups := map[group][]handBack{}
	for _, r := range back {
		if now.Before(r.until) {
			g := group{r.key, r.bury}
			groups[g] = append(groups[g], r)
		} else {
			s.counts.expiring.Add(1)
		}
	}
	var returns []handBacks
	for g, all := range groups {
		for part := range slices.Chunk(all, tokensEach) {
			returns = append(returns, handBacks{g, part})
		}
	}
	call.Pipelines(returns, func(part []handBacks) { s.returnSome(ctx, part) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.going = 0
	return len(s.back)
}

// A handBacks is a group of tokens that one command can give back.
type handBacks struct {
	group
	some []handBack
}

func (s *Semaphore) returnSome(ctx context.Context, returns []handBacks) {
	commands := make([][]any, len(returns))
	for i, r := range returns {
		tokens := make([]string, len(r.some))
		for j, one := range r.some {
			tokens[j] = one.token
		}
		commands[i] = s.release(r.key, tokens, r.bury)
	}
	_, errs := s.conn.RunAll(ctx, s.scripts.release, commands)
	for i, err := range errs {
		if err == nil {
			continue
		}
		s.counts.unanswered.Add(1)
		s.mu.Lock()
		s.back = append(s.back, returns[i].some...)
		s.mu.Unlock()
	}
}
