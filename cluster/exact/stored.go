package exact

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/reason"
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
// CacheTTL at the latest if they remember a refusal. It reports whether it set the rule: always, except with [IfAbsent]
// if there was one. The limit must be Stored, and the rule of the same kind as that in its options; its name does not
// change. The rule expires when no tokens of the key have been taken for KeepAlive, which must not be less than the
// window of the rule. A nil rule removes the stored rule; the key follows the rule in the options again.
//
// The error names the invalid value, or is a *[cluster.RedisError] or ctx.Err().
func (l *Limit) SetRule(ctx context.Context, key string, given limiter.Rule, how Setting) (bool, error) {
	if l.conn == nil {
		return false, call.ErrZero
	}
	if given == nil && l.stored && how != IfAbsent {
		keys := l.keys(key)
		if how == AndKeep {
			keys = keys[len(l.rules()):]
		}
		err := l.unlink(ctx, key, keys)
		return err == nil, err
	}
	r, err := l.mayStore(given, how)
	if err != nil {
		return false, fmt.Errorf("exact: SetRule: %w", err)
	}
	f := r.args()
	reply, err := l.conn.Run(ctx, call.NewScript(limitSetLua), l.keys(key), string(how), l.keepAlive.Milliseconds(),
		"kind", string(rune(r.kind)), "first", f[0], "second", f[1], "third", f[2],
		"limit", r.limit, "tokens", r.rate.Tokens, "per", int64(r.rate.Per), "window", int64(r.window), "buckets", r.buckets)
	l.memory.forget(key)
	return err == nil && len(reply) > 0 && reply[0] == 1, err
}

func (l *Limit) mayStore(given limiter.Rule, how Setting) (r rule, err error) {
	switch {
	case !l.stored:
		return r, errors.New("the limit must be made with Stored")
	case how != IfAbsent && how != AndReset && how != AndKeep:
		return r, fmt.Errorf("setting must be one of the constants, got %q", string(how))
	}
	if r, err = ruleOf(given); err != nil {
		return r, err
	}
	switch own := l.rules()[0]; {
	case r.kind != own.kind:
		return r, fmt.Errorf("rule must be of the kind of %q, got %q", own.String(), r.String())
	case r.span() > l.keepAlive:
		return r, fmt.Errorf("KeepAlive must be at least the window of the rule, got %v for %v", l.keepAlive, r)
	}
	return r, nil
}

// StoredRule returns the rule that Redis keeps for a key, and whether there is one. Without one, the key follows the
// rule in the options. The error is a *[cluster.RedisError] or ctx.Err().
func (l *Limit) StoredRule(ctx context.Context, key string) (in limiter.Rule, ok bool, err error) {
	if l.conn == nil {
		return nil, false, call.ErrZero
	}
	r := l.rules()[0]
	if !l.stored {
		return r.local(1), false, nil
	}
	script := call.NewScript("return redis.call('HMGET', KEYS[1], 'limit', 'tokens', 'per', 'window', 'buckets')")
	reply, err := l.conn.Call(ctx, script, l.keys(key)[1:])
	if err != nil {
		return nil, false, err
	}
	fields, _ := reply.([]any)
	var n [5]int64
	for i := range n {
		if len(fields) != len(n) || fields[i] == nil {
			return r.local(1), false, nil
		}
		if n[i], err = strconv.ParseInt(fmt.Sprint(fields[i]), 10, 64); err != nil {
			return nil, false, &cluster.RedisError{Reason: reason.Type, Err: err}
		}
	}
	r.limit, r.rate = n[0], limiter.Rate{Tokens: int(n[1]), Per: time.Duration(n[2])}
	r.window, r.buckets = time.Duration(n[3]), int(n[4])
	return r.local(1), true, nil
}
