package exact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/reason"
	"github.com/spillway-go/spillway/limiter"
)

// A Result is the answer of a [Limit]. The zero Result denies.
type Result struct {
	cluster.Result

	rule  int   // index of the rule that decided
	stamp int64 // when the tokens were taken, for a refund: µs of Redis's clock, or of this process if it decided
}

// The ways to ask.
const (
	allTokens  = "all"  // as many as asked for, or none
	someTokens = "some" // as many as there are
	giveBack   = "back"
)

// Replies of the script in place of the number of tokens taken.
const (
	elsewhere = -1 // its time is outside the calendar periods in the call
	never     = -2 // a stored rule can never admit that many
)

// Take takes n tokens of a key from all rules, or none if one rule has fewer. Neither a refusal nor a Redis outage is
// an error: see Result.Source. The error is a *[limiter.CostError] if n is negative or can never pass, or ctx.Err().
// Taking 0 takes nothing and asks Redis how many tokens are available; the Result is Allowed if there is at least one.
func (l *Limit) Take(ctx context.Context, key string, n int) (Result, error) {
	if l.conn == nil {
		return Result{}, call.ErrZero
	}
	if n == 0 {
		r, err := l.ask(ctx, key, 0, allTokens)
		r.Allowed = r.Allowed && r.Remaining > 0
		return r, err
	}
	if err := l.cost(n, allTokens); err != nil {
		return Result{}, err
	}
	return l.ask(ctx, key, int64(n), allTokens)
}

// TakeUpTo takes n tokens of a key from all rules, or as many as all of them have, if that is less: Result.Taken. The
// Result is Allowed if it took n. Otherwise RetryAfter is the time until the missing tokens are available. It is the
// time until one token is available if none could be taken and the refusal is remembered. The errors are the same as
// for [Limit.Take], but n may be any number.
func (l *Limit) TakeUpTo(ctx context.Context, key string, n int) (Result, error) {
	if n == 0 {
		return l.Take(ctx, key, 0)
	}
	if l.conn == nil {
		return Result{}, call.ErrZero
	}
	if err := l.cost(n, someTokens); err != nil {
		return Result{}, err
	}
	return l.ask(ctx, key, int64(n), someTokens)
}

// Refund gives back n of the tokens of a key that r took, or as many as r still has, and subtracts them from r.Taken.
// They go back where they came from: to their window if it has not ended, to a bucket as far as it has not refilled since, or
// to the share of this process. So no window ever admits more than its limit. The error is a *[cluster.RedisError] or
// ctx.Err(). It does nothing if n is not positive, and must not be called for the same r concurrently.
func (l *Limit) Refund(ctx context.Context, key string, r *Result, n int) error {
	if l.conn == nil {
		return call.ErrZero
	}
	back, taken := min(int64(n), r.Taken), r.Taken
	if back <= 0 {
		return nil
	}
	r.Taken -= back
	switch r.Source {
	case cluster.FromRedis:
		return l.giveBack(ctx, key, back, taken, r.stamp)
	case cluster.FromDivide:
		l.shareBack(key, back, r.stamp)
	}
	return nil
}

// Reset gives all tokens of a key back and keeps its stored rule. The error is a *[cluster.RedisError] or ctx.Err().
func (l *Limit) Reset(ctx context.Context, key string) error {
	return l.unlink(ctx, key, l.keys(key)[:len(l.rules())])
}

func (l *Limit) unlink(ctx context.Context, key string, keys []string) error {
	if l.conn == nil {
		return call.ErrZero
	}
	unlink := call.NewScript("return {redis.call('UNLINK', unpack(KEYS))}")
	_, err := l.conn.Run(ctx, unlink, keys)
	l.memory.forget(key)
	return err
}

// ask takes up to n tokens.
func (l *Limit) ask(ctx context.Context, key string, n int64, how string) (r Result, err error) {
	asked := time.Now()
	if n > 0 {
		if a := l.memory.recall(key); a.refuses(n, asked) && (how == allTokens || a.cost == 1) {
			l.refuseBy(a, asked, &r)
			return r, nil
		}
	}
	version := l.memory.version(key)
	reply, err := l.exchange(ctx, key, n, how, 0, 0)
	if err != nil {
		return l.onLoss(ctx, key, n, how, err)
	}
	r = l.resultOf(reply, n)
	if n > 0 {
		l.counts.decided(&r)
	}
	l.memory.remember(l.answerOf(key, n, how, asked, &r, reply), version)
	return r, nil
}

// refuseBy makes r the refusal of a call by an earlier answer.
func (l *Limit) refuseBy(a *answer, asked time.Time, r *Result) {
	l.counts.refusals[cluster.FromMemory][a.rule].Add(1)
	r.rule, r.State, r.RetryAfter = a.rule, a.stateAt(asked, a.rule), a.opens.Sub(asked)
	r.Rule, r.Source = l.rules()[a.rule].name, cluster.FromMemory
}

// resultOf reads the reply of the script.
func (l *Limit) resultOf(reply []int64, n int64) Result {
	r := Result{stamp: reply[0]}
	r.Allowed, r.Taken, r.RetryAfter = reply[1] == n, reply[1], fromMicros(reply[3])
	if r.rule = int(reply[2]) - 1; r.rule < 0 {
		r.rule = l.tightest(reply)
	}
	r.State = l.stateOf(reply, r.rule)
	r.Rule = l.rules()[r.rule].name
	return r
}

func (l *Limit) stateOf(reply []int64, rule int) limiter.State {
	f, limit := reply[4+3*rule:], l.rules()[rule].limit
	if l.stored {
		limit = f[3]
	}
	return limiter.State{
		Limit: limit, Remaining: f[0],
		NextIn: fromMicros(f[1]), FullIn: fromMicros(f[2]),
	}
}

// fromMicros returns a time in a reply as a duration, at most as long as a limit remembers.
func fromMicros(us int64) time.Duration {
	return time.Duration(min(us, maxMemory.Microseconds())) * time.Microsecond
}

// tightest returns the rule with the smallest part of its limit left.
func (l *Limit) tightest(reply []int64) int {
	best, least := 0, 2.0
	for i, r := range l.rules() {
		if part := float64(reply[4+3*i]) / float64(r.limit); part < least {
			best, least = i, part
		}
	}
	return best
}

// answerOf returns the answer to remember for a result. Its time counts from before the call was sent, so a refusal is
// never remembered for longer than Redis said.
func (l *Limit) answerOf(key string, n int64, how string, asked time.Time, r *Result, reply []int64) *answer {
	a := &answer{key: key, rule: r.rule, asked: asked, states: make([]limiter.State, len(l.rules()))}
	for i := range a.states {
		a.states[i] = l.stateOf(reply, i)
	}
	if r.Allowed {
		return a
	}
	wait := r.RetryAfter
	if a.cost = n; how == someTokens { // it took all there was, so a rule has not even one token left
		a.cost, wait = 1, 0
		for _, s := range a.states {
			if s.Remaining == 0 {
				wait = max(wait, s.NextIn)
			}
		}
	}
	a.opens, a.until = asked.Add(wait), asked.Add(min(wait, l.cacheTTL))
	return a
}

// giveBack returns n of the taken tokens with this stamp, unless they have come back with time.
func (l *Limit) giveBack(ctx context.Context, key string, n, taken, stamp int64) error {
	_, err := l.exchange(ctx, key, n, giveBack, stamp, taken)
	l.memory.forget(key)
	if err == nil {
		l.counts.returned.Add(1)
	}
	return err
}

// errRestless is the error if Redis names another calendar period in every reply.
var errRestless = &cluster.RedisError{
	Reason: reason.Script,
	Err:    errors.New("the clock of Redis moved to another calendar period at each call"),
}

// exchange runs the script. If the calendar periods in the call do not include the time of the server, the script
// decides nothing and returns that time, and exchange runs it again.
func (l *Limit) exchange(ctx context.Context, key string, n int64, how string, stamp, taken int64) ([]int64, error) {
	keys, script := l.keys(key), l.taking
	if how == giveBack {
		script = l.giving
	}
	for range 3 {
		now := time.Now()
		reply, err := l.conn.Run(ctx, script, keys, l.arguments(now, n, how, stamp, taken)...)
		switch {
		case err != nil:
			return nil, err
		case len(reply) == 2 && reply[1] == elsewhere:
			l.clock.learn(reply[0], now)
			continue
		case len(reply) == 3 && reply[1] == never:
			l.counts.impossible.Add(1)
			return nil, call.CostError(l.rules()[0].name, int(n), reply[2])
		case len(reply) < 4+3*len(l.rules()):
			return nil, &cluster.RedisError{Reason: reason.Script, Err: fmt.Errorf("want %d integers, got %d", 4+3*len(l.rules()), len(reply))}
		}
		return reply, nil
	}
	return nil, errRestless
}

func (l *Limit) arguments(now time.Time, n int64, how string, stamp, taken int64) []any {
	set := l.set.Load()
	args := make([]any, 3, 3+(1+figures)*len(set.rules))
	args[0], args[1], args[2] = n, how, stamp
	for i, r := range set.rules {
		f := set.args[i]
		switch {
		case set.calendars[i] != nil:
			e := set.calendars[i].around(l.clock.estimate(now))
			copy(f[1:], e[:])
		case r.kind == bucketKind && how == giveBack:
			f[3] = taken
		}
		args = append(args, string(rune(r.kind)))
		for _, x := range f {
			args = append(args, x)
		}
	}
	return args
}

// cost returns an error if a call can never pass.
func (l *Limit) cost(n int, how string) error {
	if n < 0 || how == allTokens {
		for _, r := range l.rules() {
			if n < 0 || int64(n) > r.limit && !l.stored {
				l.counts.impossible.Add(1)
				return call.CostError(r.name, n, r.limit)
			}
		}
	}
	return nil
}
