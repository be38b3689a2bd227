package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// A Setting says what happens to a stored rule and to used tokens when a rule is set.
type Setting string

// The settings.
const (
	IfAbsent Setting = "absent" // set no rule if there is one
	AndReset Setting = "reset"  // give all tokens back; only those of this client if the limit is PerClient
	AndKeep  Setting = "keep"   // used tokens stay used: a greater limit adds the difference, a smaller one leaves at least none
)

// SetRule keeps a rule for one key in Redis. All processes follow it from their next call of Redis on, and after
// Recheck at the latest if they remember a refusal. It reports whether it set the rule: always, except with [IfAbsent]
// if there was one. The limit must be Stored, and the rule of the same kind as that in its options; its name does not
// change. The rule expires when no tokens of the key have been taken for KeepAlive, which must not be less than the
// window of the rule.
//
// The error names the invalid value, or is a *[RedisError] or ctx.Err().
func (l *Limit) SetRule(ctx context.Context, key string, r Rule, how Setting) (bool, error) {
	if l.conn == nil {
		return false, errUnmade
	}
	if err := l.mayStore(r, how); err != nil {
		return false, fmt.Errorf("cluster: Limit: SetRule: %w", err)
	}
	f := r.args()
	reply, err := l.conn.run(ctx, newScript(limitSetLua), l.keys(key), string(how), l.keepAlive.Milliseconds(),
		"kind", string(rune(r.kind)), "first", f[0], "second", f[1], "third", f[2],
		"limit", r.limit, "tokens", r.rate.Tokens, "per", int64(r.rate.Per), "window", int64(r.window), "buckets", r.buckets)
	l.memory.forget(key)
	return err == nil && len(reply) > 0 && reply[0] == 1, err
}

func (l *Limit) mayStore(r Rule, how Setting) error {
	switch {
	case !l.stored:
		return errors.New("the limit must be made with Stored")
	case how != IfAbsent && how != AndReset && how != AndKeep:
		return fmt.Errorf("setting must be one of the constants, got %q", string(how))
	case r.kind != l.rules()[0].kind:
		return fmt.Errorf("rule must be of the kind of %q, got %q", l.rules()[0].String(), r.String())
	}
	if err := r.validate(); err != nil {
		return err
	}
	if r.Window() > l.keepAlive {
		return fmt.Errorf("KeepAlive must be at least the window of the rule, got %v for %v", l.keepAlive, r)
	}
	return nil
}

// StoredRule returns the rule that Redis keeps for a key, and whether there is one. Without one, the key follows the
// rule in the options. The error is a *[RedisError] or ctx.Err().
func (l *Limit) StoredRule(ctx context.Context, key string) (r Rule, ok bool, err error) {
	if l.conn == nil {
		return Rule{}, false, errUnmade
	}
	if !l.stored {
		return l.rules()[0], false, nil
	}
	script := newScript("return redis.call('HMGET', KEYS[1], 'limit', 'tokens', 'per', 'window', 'buckets')")
	reply, err := l.conn.call(ctx, script, l.keys(key)[1:])
	if err != nil {
		return Rule{}, false, err
	}
	fields, _ := reply.([]any)
	var n [5]int64
	for i := range n {
		if len(fields) != len(n) || fields[i] == nil {
			return l.rules()[0], false, nil
		}
		if n[i], err = strconv.ParseInt(fmt.Sprint(fields[i]), 10, 64); err != nil {
			return Rule{}, false, &RedisError{Reason: ReasonType, Err: err}
		}
	}
	r = l.rules()[0]
	r.limit, r.rate = n[0], limiter.Rate{Tokens: int(n[1]), Per: time.Duration(n[2])}
	r.window, r.buckets = time.Duration(n[3]), int(n[4])
	return r, true, nil
}

// Delete removes the state of a key: its used tokens and its stored rule. The error is a *[RedisError] or ctx.Err().
func (l *Limit) Delete(ctx context.Context, key string) error { return l.unlink(ctx, key, l.keys(key)) }
