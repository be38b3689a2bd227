package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// A fault is an event in the database in the middle of a load. Between its beginning and its end no query is answered.
type fault struct {
	name string
	last time.Duration // how long it lasts, about
	do   func(ctx context.Context, d *database, last time.Duration) error
}

// coldStart is not a fault of the database: the app starts straight into a high load.
const coldStart = "cold start"

func faults() []fault {
	return []fault{
		{"stop", 3 * time.Second, stopped},
		{"restart", time.Second, func(ctx context.Context, d *database, _ time.Duration) error { return d.restart(ctx) }},
		{"lock", 5 * time.Second, locked},
	}
}

func findFault(name string) (fault, error) {
	all := faults()
	if i := slices.IndexFunc(all, func(f fault) bool { return f.name == name }); i >= 0 {
		return all[i], nil
	}
	return fault{}, fmt.Errorf("-faults: no fault %q; there are none, cold, stop, restart and lock", name)
}

// stopped stops every process of the database, like a suspended machine.
func stopped(ctx context.Context, d *database, last time.Duration) error {
	err := d.signal(sigStop)
	pause(ctx, last)
	return errors.Join(err, d.signal(sigCont), ctx.Err())
}

// locked keeps the table to itself, as a migration does.
func locked(ctx context.Context, d *database, last time.Duration) error {
	c, err := pgx.Connect(ctx, d.url())
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	if _, err := c.Exec(ctx, "begin; lock table orders in access exclusive mode"); err != nil {
		return err
	}
	pause(ctx, last)
	_, err = c.Exec(ctx, "rollback")
	return err
}

// strike causes f, and returns the time when the database answered again, measured in a separate session.
func (f fault) strike(ctx context.Context, d *database) (back time.Time, err error) {
	if err := f.do(ctx, d, f.last); err != nil {
		return back, fmt.Errorf("fault %s: %w", f.name, err)
	}
	if err := d.answers(ctx, "select note from orders where id = 1"); err != nil {
		return back, fmt.Errorf("after fault %s: %w", f.name, err)
	}
	return time.Now(), nil
}

// pause waits for d, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
