package spillway

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-go/spillway/internal/deadline"
)

// fairChance is how much time a call of [Do] must have had for a missed deadline to count, as long as it is not known how
// long its like take.
const fairChance = 100 * time.Millisecond

// Do runs fn if gate admits r, and returns fn's error, or the error of [Gate.Enter] if it was refused. The outcome is
//
//   - Success if fn returns nil,
//   - Ignored if ctx was cancelled, or if fn returns a refusal (a local rejection is nobody's failure),
//   - Ignored if the deadline of ctx has passed that left fn no fair chance: less than 99 of 100 successful calls of the same
//     key take, or than 100 ms as long as fewer than 10 are known, so that callers in a hurry do not trip a breaker,
//   - Dropped if the deadline of ctx has passed, or fn's error wraps context.DeadlineExceeded,
//   - Failure for any other error, and for a panic, which passes through untouched.
func Do(ctx context.Context, gate *Gate, r Request, fn func(context.Context) error) error {
	permit, err := gate.Enter(ctx, r)
	if err != nil {
		return err
	}
	defer permit.Done(Failure)
	by, limited := ctx.Deadline()
	if !limited {
		err = fn(ctx)
		permit.Done(outcomeOf(ctx, err))
		return err
	}
	began := permit.Arrived()
	if gate.queues != 0 {
		began = time.Now()
	}
	err = fn(ctx)
	now := began.Add(time.Since(began))
	o := outcomeOf(ctx, err)
	switch late := !now.Before(by) || ctx.Err() != nil; {
	case o == Success:
		gate.chance().Observe(r.Key, now.Sub(began))
	case o == Dropped && late && !gate.chance().Fair(r.Key, by.Sub(began)):
		o = Ignored
	}
	permit.DoneAt(now, o)
	return err
}

// chance returns what is known of how long the calls of Do take.
func (g *Gate) chance() *deadline.Chance {
	if c := g.chances.Load(); c != nil {
		return c
	}
	g.chances.CompareAndSwap(nil, Must(deadline.NewChance(fairChance, nil)))
	return g.chances.Load()
}

func outcomeOf(ctx context.Context, err error) Outcome {
	switch {
	case err == nil:
		return Success
	case errors.Is(ctx.Err(), context.Canceled), errors.Is(err, ErrRejected):
		return Ignored
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Dropped
	}
	return Failure
}

// Must returns v, or panics if err is not nil. It is for variables and mains:
//
//	gate := spillway.New(spillway.Must(shedder.New(nil)))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
