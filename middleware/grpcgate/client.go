package grpcgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/overload"
)

// A Client gates the calls of gRPC clients. It is made by [NewClient], and safe for concurrent use. Pass its methods
// Unary and Stream to grpc.NewClient.
//
// A refused call is not made. Its error is a status with the code of [ClientOptions.Code], or DEADLINE_EXCEEDED if it is
// TooLate, and wraps the *[spillway.Rejection]: errors.Is with [spillway.ErrRejected] distinguishes it from an answer of the server, and
// errors.As finds the policy that refused. The text of the error does not name the policy, because a handler may pass
// it on to its own caller.
//
// Retries by a service config are part of one call and pass the gate once. They obey the delay of a refusal, and
// retryThrottling is their budget: prefer them. Retries by an interceptor outside the gate pass it each time.
type Client struct {
	gate   *spillway.Gate
	o      ClientOptions // no field is nil
	took   latencies
	hosts  *overload.Hosts // nil if it listens to none
	open   *streamPlaces
	leaked atomic.Int64
}

// ClientOptions configure a [Client]. The zero ClientOptions consists entirely of defaults. Its functions may be called
// concurrently.
type ClientOptions struct {
	// Request describes a call to method, such as /package.Service/Method, through conn. Its Timeout does not end the
	// call, but the deadline of ctx does, and gRPC passes the remaining time on.
	// If it leaves the route empty, the route is method. If Request is nil, the key is the target of conn.
	Request func(ctx context.Context, conn *grpc.ClientConn, method string) spillway.Request

	// Stream says how long the streams of method are in flight. If Stream is nil, all are [DetachStream].
	Stream func(method string) StreamMode

	// MaxStreams is how many streams that have left the gate may be open at once. Further streams are refused. If the
	// places run out while a stream opens, it stays in flight instead. A key may have one more place as long as it has
	// fewer than are free. So one key alone gets half of them, and a target that hangs leaves room for the others. If
	// MaxStreams is 0, it is 10000.
	MaxStreams int

	// Outcome returns the outcome of a call to method that ended with err. Three kinds of calls are [spillway.Ignored]
	// without asking it: a missed deadline that left too little time (MinBudget), a call whose method or message cannot
	// be sent, and a stream that its caller gave up. If Outcome is nil, it is [DefaultClientOutcome] of err.
	Outcome func(ctx context.Context, method string, err error) spillway.Outcome

	// MinBudget is the shortest time budget for which a missed deadline counts against the server. A call that had less
	// time is [spillway.Ignored], so that very short deadlines cannot trip a breaker for all callers. Once 10 calls of a
	// method with enough time have succeeded, their 99th percentile replaces MinBudget. The time of a stream runs from
	// the last message or CloseSend on, and while the caller reads. Before CloseSend the server owes no answer. If
	// MinBudget is 0, it is 100 ms.
	MinBudget time.Duration

	// ListenTo lists targets that may ask this client to hold calls back, as they were given to grpc.NewClient. Under
	// overload such a server says in the trailer spillway-overload (Options.TellClients) from which priority on it has room.
	// The Client then refuses calls of lower priorities, and a share of those at that priority, without making them. It
	// believes at most a share of 0.95, for at most 10 s after an answer, and makes one call per second whatever the server
	// says. A server that says nothing but refuses many calls gets at most about 1.4 times those that it accepts. These
	// refusals happen before the gate, and [Stats] counts them. If ListenTo is empty, the trailer means nothing.
	ListenTo []string

	// Code is the status of a refused call: codes.Unavailable, or codes.ResourceExhausted.
	// If Code is 0, it is codes.Unavailable.
	Code codes.Code
}

// NewClient returns a Client for any connection. If o is nil, it has the defaults. The error names the invalid
// argument: a nil gate, or a field of o and its value.
func NewClient(gate *spillway.Gate, o *ClientOptions) (*Client, error) {
	if gate == nil {
		return nil, errors.New("grpcgate: gate: must be a Gate, got nil")
	}
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Client{
		gate: gate, o: opts, took: newLatencies(opts.MinBudget), open: newPlaces(opts.MaxStreams),
		hosts: overload.NewHosts(opts.ListenTo, time.Now()),
	}, nil
}

func (o *ClientOptions) withDefaults() (ClientOptions, error) {
	var out ClientOptions
	if o != nil {
		out = *o
	}
	if out.Request == nil {
		out.Request = func(_ context.Context, conn *grpc.ClientConn, _ string) spillway.Request {
			return spillway.Request{Key: conn.Target()}
		}
	}
	if out.Outcome == nil {
		out.Outcome = func(_ context.Context, _ string, err error) spillway.Outcome { return DefaultClientOutcome(err) }
	}
	if i := slices.Index(out.ListenTo, ""); i >= 0 {
		return out, fmt.Errorf("grpcgate: ListenTo[%d]: must be a target of grpc.NewClient, got %q", i, "")
	}
	err := settle(&out.MaxStreams, &out.MinBudget, &out.Code, codes.Unavailable, &out.Stream)
	return out, err
}

// describe returns the Request for method. The method is its route, unless it names another.
func (c *Client) describe(ctx context.Context, conn *grpc.ClientConn, method string) spillway.Request {
	r := c.o.Request(ctx, conn, method)
	if r.Route == "" {
		r.Route = method
	}
	return r
}

// Stats returns a snapshot of the counts. It may be called at any time.
func (c *Client) Stats() Stats {
	return Stats{
		Streams: c.open.Taken(), StreamsRefused: c.open.refused.Value(), Leaked: c.leaked.Load(),
		HeldBack: c.hosts.HeldBack(), Throttled: c.hosts.Throttled(),
	}
}

// Unary is a grpc.UnaryClientInterceptor.
func (c *Client) Unary(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	r := c.describe(ctx, conn, method)
	l, err := c.listener(conn, r.Priority)
	if err != nil {
		return err
	}
	permit, err := c.gate.Enter(ctx, r)
	if err != nil {
		return c.refusal(err)
	}
	defer permit.Done(spillway.Failure) // covers panics
	opts, trailer := l.asks(opts)
	err = invoker(ctx, method, req, reply, conn, opts...)
	if err == nil {
		l.heard(trailer, spillway.Success, 0)
		c.succeeded(ctx, method, &permit)
		return nil
	}
	o := c.outcome(ctx, method, err, allotted(ctx, permit.Arrived()))
	wish := wish(o, err)
	permit.DoneAt(time.Time{}, o, wish)
	l.heard(trailer, o, wish)
	return err
}

// succeeded ends a unary call that was answered.
func (c *Client) succeeded(ctx context.Context, method string, permit *spillway.Permit) {
	o := c.o.Outcome(ctx, method, nil)
	arrived := permit.Arrived()
	latency := time.Since(arrived)
	permit.DoneAt(arrived.Add(latency), o, 0)
	if o == spillway.Success {
		c.took.observe(ctx, method, arrived, latency)
	}
}

// outcome returns the outcome of a call that ended with err, and whose server had the given time.
func (c *Client) outcome(ctx context.Context, method string, err error, had time.Duration) spillway.Outcome {
	if err != nil && (!sendable(method) || codeOf(err) == codes.DeadlineExceeded && c.took.unfair(method, had)) {
		return spillway.Ignored
	}
	return c.o.Outcome(ctx, method, err)
}

// sendable reports whether method can stand in a header of HTTP/2. A server resets a stream with any other method.
func sendable(method string) bool {
	for i := range len(method) {
		if b := method[i]; b < ' ' || b > '~' {
			return false
		}
	}
	return true
}

// maxWish is the longest delay that is accepted from a server.
const maxWish = 24 * time.Hour

// wish returns the delay that the server asks for in the RetryInfo of err, or 0.
func wish(o spillway.Outcome, err error) time.Duration {
	if err == nil || o != spillway.Dropped && o != spillway.Failure {
		return 0
	}
	s, ok := status.FromError(err)
	if !ok {
		return 0
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return min(max(info.GetRetryDelay().AsDuration(), 0), maxWish)
		}
	}
	return 0
}

// refusal returns the error of a call that the gate refused with err.
func (c *Client) refusal(err error) error {
	if rej := spillway.RejectionOf(err); rej != nil {
		if rej.TooLate {
			return &localError{rej: rej, code: codes.DeadlineExceeded}
		}
		return &localError{rej: rej, code: c.o.Code}
	}
	return status.FromContextError(err).Err()
}

// textLocal is the message of a call that was not made. A handler that made the call may pass the message on to a
// remote caller, so it does not name the policy.
const textLocal = "refused before it was sent"

// A localError is the error of a call that was not made. Its status is built on demand, because most
// callers do not ask for it.
type localError struct {
	rej  *spillway.Rejection
	code codes.Code
}

func (e *localError) Error() string {
	return "rpc error: code = " + e.code.String() + " desc = " + textLocal
}

func (e *localError) Unwrap() error { return e.rej }

func (e *localError) GRPCStatus() *status.Status {
	s := status.New(e.code, textLocal)
	if e.rej.RetryAfter <= 0 {
		return s
	}
	return spillway.Must(s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.rej.RetryAfter)}))
}
