package call

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/reason"
)

// MaxFlights is the greatest number of calls of one Conn in flight at the same time. Other callers wait without a
// goroutine, as they would for a connection of the client's pool.
const MaxFlights = 512

// linger is how long a call of a client with ContextTimeoutEnabled continues after its caller has left. It covers the
// round trips of a new connection at 500 ms each. Other clients end by their ReadTimeout, which is 5 s by default.
const linger = 3 * time.Second

// A flight is one call of the client in its own goroutine, so that the caller can leave when its time is up. The client
// then finishes a connection, which may take several round trips, or reads the late reply and keeps the connection.
// Otherwise each call that times out would cost a connection, and the next call would begin by making one. The
// goroutine ends with the client's call, at the latest after [linger] or by the client's timeouts.
type flight struct {
	conn   *Conn
	began  time.Time
	ctx    context.Context //nolint:containedctx // of the client's call
	cancel context.CancelFunc
	sent   atomic.Int64  // ns since began when the client wrote the command; 0 before, givenUp if it never will
	left   error         // why the caller has left; used by the caller only
	key    any           // of one of its commands
	done   chan struct{} // closed when the fields below are set

	reply    any
	err      error
	stale    bool  // err comes from a connection that had ended before; Redis answers on other connections
	replies  []any // of a pipeline, with errs
	errs     []error
	panicked any
}

// givenUp marks a call whose caller left before it was sent.
const givenUp = -1

// errEnded is the error of a call that ended its goroutine (runtime.Goexit).
var errEnded = errors.New("the call of the client ended without a result")

// errQueued is the error of a call that did not begin because too many others were in flight.
var errQueued = errors.New("too many calls at once")

func newFlight(ctx context.Context, c *Conn, began time.Time) *flight {
	f := &flight{conn: c, began: began, done: make(chan struct{}), err: errEnded}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.ctx, f.cancel = lingering{inner, began.Add(max(c.Timeout, linger))}, cancel
	return f
}

// A lingering context is done when the caller leaves, which ends the wait for a connection of the pool. Its deadline is
// later. The client uses the deadline when it sets up a connection and when it reads.
type lingering struct {
	context.Context //nolint:containedctx // it is one
	deadline        time.Time
}

// Deadline returns the time at which the client stops.
func (l lingering) Deadline() (time.Time, bool) { return l.deadline, true }

// run runs fn in its own goroutine. It returns true when fn has ended, and false if the time of the caller is up. A
// panic in a hook of the client is raised in the caller.
func (f *flight) run(ctx context.Context, fn func(ctx context.Context)) bool {
	timer := time.NewTimer(time.Until(f.began.Add(f.conn.Timeout)))
	defer timer.Stop()
	select {
	case f.conn.Flights <- struct{}{}:
	case <-ctx.Done():
		return f.leave(errQueued)
	case <-timer.C:
		return f.leave(errQueued)
	}
	go func() {
		defer f.land()
		defer func() { f.panicked = recover() }()
		fn(f.ctx)
		f.stale = f.there(f.ctx)
	}()
	select {
	case <-f.done:
		return f.ended()
	case <-ctx.Done():
	case <-timer.C:
	}
	select {
	case <-f.done: // fn may have ended as well
		return f.ended()
	default:
		return f.leave(context.DeadlineExceeded)
	}
}

// leave ends the caller's part of the call, for the given reason.
func (f *flight) leave(why error) bool {
	f.sent.CompareAndSwap(0, givenUp)
	f.cancel()
	f.left = why
	return false
}

func (f *flight) land() {
	close(f.done)
	f.cancel()
	if f.sent.Load() > 0 {
		f.conn.underway.Add(-1)
	}
	<-f.conn.Flights
}

// there reports whether Redis answers although the connection of f has ended. When Redis restarts, all connections of
// the pool end at once, and each of them fails a call. A breaker that counted those would open, and fail probe by probe
// for longer and longer. The client finds such connections by itself, but not with TLS or on Windows. So there uses them up
// until one answers.
func (f *flight) there(ctx context.Context) bool {
	if f.err == nil || f.key == nil || f.sent.Load() <= 0 || reasonOf(f.err) != reason.Conn {
		return false // it was not sent, or its connection has not ended
	}
	for range f.conn.Client.PoolStats().IdleConns + 1 {
		err := f.conn.Client.Process(ctx, onceCmd{redis.NewCmd(ctx, "exists", f.key)})
		if err == nil {
			return true
		}
		if reasonOf(err) != reason.Conn {
			break
		}
	}
	return false
}

func (f *flight) ended() bool {
	if f.panicked != nil {
		panic(f.panicked)
	}
	if f.err == nil || isReply(f.err) {
		f.conn.heard.Store(int64(time.Since(f.conn.Base)))
	}
	return true
}

// isReply reports whether an error is an answer by Redis.
func isReply(err error) bool {
	var fromServer redis.Error
	return errors.As(err, &fromServer)
}

// A onceCmd is a command that the client does not send again when the answer is lost: Redis may have run it.
// Redirections are followed, since they say that it was not run.
type onceCmd struct{ *redis.Cmd }

// NoRetry stops the client from retrying, whatever its MaxRetries.
func (onceCmd) NoRetry() bool { return true }

// A markedArg is the script in a command, by hash or by source. The client reads its bytes only when it writes the
// command to a connection. So the flight learns that the command is sent, and can void it if it is too late.
type markedArg struct {
	flight *flight
	text   string
	void   string // a script without effect, sent instead of a late one
}

// MarshalBinary returns the text, or the void script if the caller has left.
func (m markedArg) MarshalBinary() ([]byte, error) {
	f := m.flight
	if f.sent.CompareAndSwap(0, max(int64(time.Since(f.began)), 1)) {
		f.conn.underway.Add(1)
	}
	if f.sent.Load() == givenUp {
		return []byte(m.void), nil
	}
	return []byte(m.text), nil
}

// String returns the text, for hooks that log commands.
func (m markedArg) String() string { return m.text }

// noScript is the hash of no script, and emptyScript is one that does nothing.
const (
	noScript    = "0000000000000000000000000000000000000000"
	emptyScript = "return false"
)

// send runs a script, and sends its source if the server does not know it.
func (f *flight) send(ctx context.Context, s *Script, command []any) (any, error) {
	f.mark(command, noScript)
	cmd := onceCmd{redis.NewCmd(ctx, command...)}
	err := f.conn.Client.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") && f.sent.Load() != givenUp {
		cmd = onceCmd{redis.NewCmd(ctx, f.mark(s.withSource(command), emptyScript)...)}
		err = f.conn.Client.Process(ctx, cmd)
	}
	if errors.Is(err, redis.Nil) {
		return nil, nil //nolint:nilnil // the script returned nil
	}
	if err != nil {
		return nil, err
	}
	return cmd.Result()
}

// mark replaces the text of the script in a command.
func (f *flight) mark(command []any, void string) []any {
	command[1] = markedArg{flight: f, text: fmt.Sprint(command[1]), void: void}
	if len(command) > 3 {
		f.key = command[3] // the argument after the number of keys
	}
	return command
}

// judge turns the error of the client into an error of this package, and into an outcome for the breaker.
func (f *flight) judge(ctx context.Context) (spillway.Outcome, error) {
	if f.left != nil {
		return f.verdict(ctx, f.left)
	}
	return f.verdict(ctx, f.err)
}

// verdict judges one error of the client.
func (f *flight) verdict(ctx context.Context, err error) (spillway.Outcome, error) {
	c, why := f.conn, reasonOf(err)
	if why == reason.Type || isFull(err) {
		return spillway.Success, &cluster.RedisError{Reason: why, Err: err} // it concerns one key only
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return spillway.Ignored, ctx.Err()
	}
	slow := why == reason.Timeout || why == reason.Busy
	blame := !slow || why == reason.Timeout && f.fair()
	if deadline, ok := ctx.Deadline(); ok && slow && !deadline.After(f.began.Add(c.Timeout)) {
		// The caller had less time than a call may take. With at least a quarter of it, a slow Redis is still to blame.
		outcome := spillway.Ignored
		if blame && deadline.Sub(f.began) >= c.Timeout/4 {
			outcome = spillway.Dropped
		}
		return outcome, context.DeadlineExceeded
	}
	if why == reason.Conn && f.stale {
		return spillway.Ignored, &cluster.RedisError{Reason: why, Err: err}
	}
	if blame {
		return spillway.Failure, &cluster.RedisError{Reason: why, Err: err}
	}
	if f.sent.Load() <= 0 && f.crowded() {
		why = reason.Busy
	}
	return spillway.Ignored, &cluster.RedisError{Reason: why, Err: err}
}

// fair reports whether Redis is to blame for a call that took too long. A call that was sent counts if Redis had most
// of the time, or answered no call in it. A call that was not sent counts unless other calls hold the connections.
func (f *flight) fair() bool {
	if sent := f.sent.Load(); sent > 0 && time.Duration(sent) <= f.conn.Timeout/4 {
		return true
	}
	return !f.crowded()
}

// crowded reports whether a call waited for a connection that other calls held.
func (f *flight) crowded() bool {
	c := f.conn
	return c.heard.Load() >= int64(f.began.Sub(c.Base)) || f.sent.Load() <= 0 && c.underway.Load() > 0
}
