package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"
)

//go:embed scripts/semaphore.lua
var semaphoreLua string

//go:embed scripts/semaphore_sweep.lua
var semaphoreSweepLua string

//go:embed scripts/semaphore_acquire.lua
var semaphoreAcquireLua string

//go:embed scripts/semaphore_renew.lua
var semaphoreRenewLua string

//go:embed scripts/semaphore_release.lua
var semaphoreReleaseLua string

//go:embed scripts/semaphore_peek.lua
var semaphorePeekLua string

// semScripts are the scripts of a semaphore.
type semScripts struct{ acquire, renew, release, peek *script }

// newSemScripts returns the scripts with a clock that defines now. The scripts that wake callers publish on channels
// that begin with channel.
func newSemScripts(clock, channel string) *semScripts {
	sweep := semaphoreLua + fmt.Sprintf("\nlocal channel = %q\n", channel) + semaphoreSweepLua
	return &semScripts{
		acquire: newScript(clock, sweep, semaphoreAcquireLua),
		renew:   newScript(clock, semaphoreLua, semaphoreRenewLua),
		release: newScript(clock, sweep, semaphoreReleaseLua),
		peek:    newScript(clock, sweep, semaphorePeekLua),
	}
}

// keys returns the Redis keys of the caller's key, all in one slot.
func (s *Semaphore) keys(key string) []string {
	base := s.base + escapeTag(shortKey(key), false) + "}:"
	return []string{base + "holders", base + "facts", base + "queue", base + "patience", base + "numbers", base + "dead"}
}

// A semAnswer is the reply of Redis to a request for a permit.
type semAnswer struct {
	granted, full bool
	fence         int64
	left          time.Duration // until a lease ends; 0 if that is unknown
	place         int64         // in the queue, from 1
}

// errBuried is the error of a token that was given up.
var errBuried = errors.New("token was given up")

// ask asks for a permit once. If patience is not 0, the call takes a place in the queue, or keeps it, for that long.
func (s *Semaphore) ask(ctx context.Context, key, token string, patience time.Duration) (semAnswer, error) {
	o := s.live.Load()
	got, err := s.conn.run(ctx, s.scripts.acquire, s.keys(key),
		token, o.Limit, s.ttl.Microseconds(), patience.Microseconds(), max(o.MaxQueue, 0), s.patience(s.poll).Microseconds())
	if err == nil && len(got) < 3 {
		err = &RedisError{Reason: ReasonScript, Err: fmt.Errorf("want 3 integers, got %d", len(got))}
	}
	if err != nil {
		return semAnswer{}, err
	}
	switch got[0] {
	case 1:
		return semAnswer{granted: true, fence: got[1]}, nil
	case 0:
		a := semAnswer{left: time.Duration(got[1]) * time.Microsecond}
		if len(got) > 3 {
			a.place = got[3]
		}
		return a, nil
	case -1:
		return semAnswer{full: true}, nil
	}
	return semAnswer{}, &RedisError{Reason: ReasonScript, Err: errBuried}
}

// patience is how long a place in the queue lasts for a caller that asks every poll, without another call.
func (s *Semaphore) patience(poll time.Duration) time.Duration { return 4*poll + s.conn.timeout }

// renewal returns the command that asks for another TTL for tokens of one key. Its reply has 1 for each renewed token.
func (s *Semaphore) renewal(key string, tokens []string) []any {
	return s.scripts.renew.command(s.keys(key), append([]any{s.ttl.Microseconds()}, anys(tokens)...))
}

// release returns the command that gives tokens of one key back. If bury is true, calls for them may still be on their
// way, and will have no effect.
func (s *Semaphore) release(key string, tokens []string, bury bool) []any {
	var grave time.Duration
	if bury {
		grave = s.ttl
	}
	args := []any{s.live.Load().Limit, grave.Microseconds(), s.patience(s.poll).Microseconds()}
	return s.scripts.release.command(s.keys(key), append(args, anys(tokens)...))
}

// Peek asks Redis how many permits of a key are held and how many calls wait for one, in all processes.
func (s *Semaphore) Peek(ctx context.Context, key string) (held, waiting int, err error) {
	if s.conn == nil {
		return 0, 0, errUnmade
	}
	got, err := s.conn.run(ctx, s.scripts.peek, s.keys(key))
	if err != nil {
		return 0, 0, err
	}
	if len(got) != 2 {
		return 0, 0, &RedisError{Reason: ReasonScript, Err: fmt.Errorf("want 2 integers, got %d", len(got))}
	}
	return int(got[0]), int(got[1]), nil
}

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}
