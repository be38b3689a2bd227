package exact

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/reason"
)

// A Claim names the tokens that [TakeAll] takes of one key.
type Claim struct {
	Limit *Limit
	Key   string
	Cost  int // tokens to take; if Cost is 0, it is 1
}

// maxClaims bounds the work of one script.
const maxClaims = 64

// together is the script of [TakeAll], with the parts of all rules.
//
//nolint:gochecknoglobals // made once, at the first use
var together = sync.OnceValue(func() *call.Script {
	return call.NewScript(call.Clock, limitWrongLua, limitBucketLua, limitWindowLua, limitRingLua, limitLogLua, limitMainLua)
})

// TakeAll takes the tokens of all claims, or none if one of them has too few: those of a user, of its tenant and of all
// tenants, for example, in one round trip and one atomic step. It returns a Result for each claim. All of them are
// Allowed, or none; then RetryAfter is positive for a claim that lacks tokens. Give tokens back with the Result and the
// Limit of their claim.
//
// The limits have the same Client, and are not Stored. There are at most 64 claims, and no two of the same key of a
// Limit. On a Redis Cluster, the keys must be in one slot: all limits have the same [Options.Slot]. When Redis does not
// answer, the Fallback of each Limit decides about its claim, and tokens already taken by Divide go back if another
// claim is refused. The error names an invalid claim, is a *[limiter.CostError] if a cost can never pass, or ctx.Err().
func TakeAll(ctx context.Context, claims ...Claim) ([]Result, error) {
	if err := checkClaims(claims); err != nil {
		return nil, err
	}
	asked, out := time.Now(), make([]Result, len(claims))
	versions := make([]uint32, len(claims))
	for i, c := range claims {
		if a := c.Limit.memory.recall(c.Key); a.refuses(c.cost(), asked) {
			c.Limit.refuseBy(a, asked, &out[i])
			return out, nil
		}
		versions[i] = c.Limit.memory.version(c.Key)
	}
	reply, err := exchangeAll(ctx, claims)
	if err != nil {
		return takeAllAlone(ctx, claims, err)
	}
	first := 0
	for i, c := range claims {
		part := partOf(reply, first, len(c.Limit.rules()), c.cost())
		r := c.Limit.resultOf(part, c.cost())
		if r.Allowed || part[2] > 0 {
			c.Limit.counts.decided(&r)
		}
		c.Limit.memory.remember(c.Limit.answerOf(c.Key, c.cost(), allTokens, asked, &r, part), versions[i])
		out[i] = r
		first += len(c.Limit.rules())
	}
	return out, nil
}

func (c *Claim) cost() int64 {
	if c.Cost == 0 {
		return 1
	}
	return int64(c.Cost)
}

func checkClaims(claims []Claim) error {
	if len(claims) < 1 || len(claims) > maxClaims {
		return fmt.Errorf("exact: TakeAll: claims must be 1..%d, got %d", maxClaims, len(claims))
	}
	seen := make(map[string]int, len(claims))
	for i, c := range claims {
		switch l := c.Limit; {
		case l == nil:
			return fmt.Errorf("exact: TakeAll: claims[%d]: Limit must be set, got nil", i)
		case l.conn == nil:
			return call.ErrZero
		case l.stored:
			return fmt.Errorf("exact: TakeAll: claims[%d]: Limit %q must not be Stored", i, l.name)
		case l.conn.Client != claims[0].Limit.conn.Client:
			return fmt.Errorf("exact: TakeAll: claims[%d]: Limit %q must have the Client of the first", i, l.name)
		case len(claims) > 1 && manyServers(l.conn.Client) && (l.slot == "" || l.slot != claims[0].Limit.slot):
			return fmt.Errorf("exact: TakeAll: claims[%d]: Limit %q must have the Slot of the first, as several servers have the keys, got %q",
				i, l.name, l.slot)
		}
		if err := c.Limit.cost(int(c.cost()), allTokens); err != nil {
			return err
		}
		key := c.Limit.keys(c.Key)[0]
		if before, twice := seen[key]; twice {
			return fmt.Errorf("exact: TakeAll: claims[%d]: must not be of the key of claims[%d], got %q", i, before, c.Key)
		}
		seen[key] = i
	}
	return nil
}

// manyServers reports whether keys in different slots are on different servers.
func manyServers(client redis.UniversalClient) bool {
	switch client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		return true
	}
	return false
}

// exchangeAll runs the script for all claims. Like [Limit.exchange], it asks again if a calendar in the call differs from the
// server's.
func exchangeAll(ctx context.Context, claims []Claim) ([]int64, error) {
	var keys []string
	rules := 0
	for _, c := range claims {
		keys = append(keys, c.Limit.keys(c.Key)...)
		rules += len(c.Limit.rules())
	}
	for range 3 {
		now := time.Now()
		args := append(make([]any, 0, 3+7*rules), 1, allTokens, 0)
		for _, c := range claims {
			args = append(args, c.Limit.arguments(now, 0, allTokens, 0, 0)[3:]...)
		}
		for _, c := range claims {
			for range c.Limit.rules() {
				args = append(args, c.cost())
			}
		}
		reply, err := claims[0].Limit.conn.Run(ctx, together(), keys, args...)
		switch {
		case err != nil:
			return nil, err
		case len(reply) == 2 && reply[1] == elsewhere:
			for _, c := range claims {
				c.Limit.clock.learn(reply[0], now)
			}
			continue
		case len(reply) < 4+3*rules:
			return nil, &cluster.RedisError{Reason: reason.Script, Err: fmt.Errorf("want %d integers, got %d", 4+3*rules, len(reply))}
		}
		return reply, nil
	}
	return nil, errRestless
}

// partOf returns the reply as if the script had been called for one claim alone, whose rules begin at first.
func partOf(reply []int64, first, rules int, cost int64) []int64 {
	part := make([]int64, 4, 4+3*rules)
	part[0], part[1] = reply[0], reply[1]*cost
	if rule := int(reply[2]) - first; rule > 0 && rule <= rules {
		part[2], part[3] = int64(rule), reply[3]
	}
	return append(part, reply[4+3*first:4+3*(first+rules)]...)
}

// takeAllAlone has the Fallback of each Limit decide instead of Redis.
func takeAllAlone(ctx context.Context, claims []Claim, why error) ([]Result, error) {
	if !call.Unanswered(why) {
		return nil, why
	}
	out := make([]Result, len(claims))
	for i, c := range claims {
		var err error
		out[i], err = c.Limit.onLoss(ctx, c.Key, c.cost(), allTokens, why)
		if err == nil && out[i].Allowed {
			continue
		}
		for j := range i + 1 {
			if r := &out[j]; r.Allowed && r.Source == cluster.FromDivide {
				claims[j].Limit.shareBack(claims[j].Key, r.Taken, r.stamp)
			}
			out[j].Allowed, out[j].Taken = false, 0
		}
		if err != nil {
			return nil, err
		}
		break
	}
	return out, nil
}
