package spillway

import (
	"context"
	"errors"
)

// Do runs fn if gate admits r, and returns fn's error, or the error of [Gate.Enter] if it was refused. The outcome is
//
//   - Success if fn returns nil,
//   - Ignored if ctx was cancelled, or if fn returns a refusal (a local rejection is nobody's failure),
//   - Dropped if the deadline of ctx has passed, or fn's error wraps context.DeadlineExceeded,
//   - Failure for any other error, and for a panic, which passes through untouched.
func Do(ctx context.Context, gate *Gate, r Request, fn func(context.Context) error) error {
	permit, err := gate.Enter(ctx, r)
	if err != nil {
		return err
	}
	defer permit.Done(Failure)
	err = fn(ctx)
	permit.Done(outcomeOf(ctx, err))
	return err
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
