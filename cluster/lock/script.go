package lock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/reason"
)

//go:embed scripts/semaphore.lua
var semaphoreLua string

//go:embed scripts/sweep.lua
var semaphoreSweepLua string

//go:embed scripts/acquire.lua
var semaphoreAcquireLua string

//go:embed scripts/renew.lua
var semaphoreRenewLua string

//go:embed scripts/release.lua
var semaphoreReleaseLua string

//go:embed scripts/peek.lua
var semaphorePeekLua string

// scripts are the scripts of a semaphore.
type scripts struct{ acquire, renew, release, peek *call.Script }

// newSemScripts returns the scripts with a clock that defines now. The scripts that wake callers publish on channels
// that begin with channel.
func newScripts(clock, channel string) *scripts {
	sweep := semaphoreLua + fmt.Sprintf("\nlocal channel = %q\n", channel) + semaphoreSweepLua
	return &scripts{
		acquire: call.NewScript(clock, sweep, semaphoreAcquireLua),
		renew:   call.NewScript(clock, semaphoreLua, semaphoreRenewLua),
		release: call.NewScript(clock, sweep, semaphoreReleaseLua),
		peek:    call.NewScript(clock, sweep, semaphorePeekLua),
	}
}

// keys returns the Redis keys of the caller's key, all in one slot.
func (s *Semaphore) keys(key string) []string {
	base := s.base + escapeTag(call.ShortKey(key), false) + "}:"
	return []string{base + "holders", base + "facts", base + "queue", base + "patience", base + "numbers", base + "dead"}
}

// An answer is the reply of Redis to a request for a permit.
type answer struct {
	granted, full bool
	fence         int64
	left          time.Duration // until a lease ends; 0 if that is unknown
	place         int64         // in the queue, from 1
}

// errBuried is the error of a token that was given up.
var errBuried = errors.New("token was given up")

// ask asks for a permit once. If patience is not 0, the call takes a place in the queue, or keeps it, for that long.
func (s *Semaphore) ask(ctx context.Context, key, token string, patience time.Duration) (answer, error) {
	o := s.live.Load()
	got, err := s.conn.Run(ctx, s.scripts.acquire, s.keys(key),
		token, o.Limit, s.ttl.Microseconds(), patience.Microseconds(), max(o.MaxQueue, 0), s.patience(s.poll).Microseconds())
	if err == nil && len(got) < 3 {
		err = &cluster.RedisError{Reason: reason.Script, Err: fmt.Errorf("want 3 integers, got %d", len(got))}
	}
	if err != nil {
		return answer{}, err
	}
	switch got[0] {
	case 1:
		return answer{granted: true, fence: got[1]}, nil
	case 0:
		a := answer{left: time.Duration(got[1]) * time.Microsecond}
		if len(got) > 3 {
			a.place = got[3]
		}
		return a, nil
	case -1:
		return answer{full: true}, nil
	}
	return answer{}, &cluster.RedisError{Reason: reason.Script, Err: errBuried}
}

// patience is how long a place in the queue lasts for a caller that asks every poll, without another call.
func (s *Semaphore) patience(poll time.Duration) time.Duration { return 4*poll + s.conn.Timeout }

// renewal returns the command that asks for another TTL for tokens of one key. If regain is true, tokens without a lease get one,
// whatever the limit. Its reply has 1 for each token with a lease.
func (s *Semaphore) renewal(key string, regain bool, tokens []string) []any {
	anew := 0
	if regain {
		anew = 1
	}
	return s.scripts.renew.Command(s.keys(key), append([]any{s.ttl.Microseconds(), anew}, anys(tokens)...))
}

// release returns the command that gives tokens of one key back. If bury is true, calls for them may still be on their
// way, and will have no effect.
func (s *Semaphore) release(key string, tokens []string, bury bool) []any {
	var grave time.Duration
	if bury {
		grave = s.ttl
	}
	args := []any{s.live.Load().Limit, grave.Microseconds(), s.patience(s.poll).Microseconds()}
	return s.scripts.release.Command(s.keys(key), append(args, anys(tokens)...))
}

// Peek asks Redis how many permits of a key are held and how many calls wait for one, in all processes.
func (s *Semaphore) Peek(ctx context.Context, key string) (held, waiting int, err error) {
	if s.conn == nil {
		return 0, 0, call.ErrZero
	}
	got, err := s.conn.Run(ctx, s.scripts.peek, s.keys(key))
	if err != nil {
		return 0, 0, err
	}
	if len(got) != 2 {
		return 0, 0, &cluster.RedisError{Reason: reason.Script, Err: fmt.Errorf("want 2 integers, got %d", len(got))}
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
