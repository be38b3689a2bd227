package grpcgate

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-go/spillway"
)

// UnaryClient returns an interceptor that makes a call if gate admits it. If o is nil, it has the defaults.
//
// UnaryClient panics if gate is nil or if a field of o is invalid; [NewClient] returns the error instead.
func UnaryClient(gate *spillway.Gate, o *ClientOptions) grpc.UnaryClientInterceptor {
	return spillway.Must(NewClient(gate, o)).Unary
}

// StreamClient is [UnaryClient] for streams.
func StreamClient(gate *spillway.Gate, o *ClientOptions) grpc.StreamClientInterceptor {
	return spillway.Must(NewClient(gate, o)).Stream
}

// A Client gates the calls of gRPC clients. It is made by [NewClient], and safe for concurrent use. Its methods Unary and
// Stream are to be handed to grpc.NewClient.
//
// A refused call is not made. Its error is a status with the code of [ClientOptions.Code] and wraps the
// *[spillway.Rejection]: errors.Is with [spillway.ErrRejected] distinguishes it from an answer of the server, and errors.As gives
// which policy refused. The text of the error does not, because a handler may hand it on to its own caller.
//
// The retries of a service config are part of one call: they pass the gate once. Those of an interceptor pass it each
// time, if it stands outside the gate.
type Client struct {
	gate   *spillway.Gate
	o      ClientOptions // no field is nil
	took   latencies
	open   *places
	leaked atomic.Int64
}

// ClientOptions says how a [Client] sees calls. The zero ClientOptions consists entirely of defaults. Its functions are
// called from many goroutines at once.
type ClientOptions struct {
	// Request describes a call to method, such as /package.Service/Method, through conn.
	// If Request is nil, the key is the target of conn, and the rest is zero.
	Request func(ctx context.Context, conn *grpc.ClientConn, method string) spillway.Request

	// Stream says how long the streams of method are in flight. If Stream is nil, all are [DetachStream].
	Stream func(method string) StreamMode

	// MaxStreams is how many streams that have left the gate may be open at once. Another one is refused; one that was
	// opened before there were so many stays in flight. A key may have one more as long as it has fewer than are free, so
	// one key alone gets half of them, and a target that hangs leaves room for the others.
	// If MaxStreams is 0, it is 10000.
	MaxStreams int

	// Outcome says how a call to method went that ended with err. It is not asked about a missed deadline that left too
	// little time (MinBudget), about a call whose method or message cannot be sent, nor about a stream that its caller gave up: those are
	// [spillway.Ignored]. If Outcome is nil, it is [DefaultClientOutcome] of err.
	Outcome func(ctx context.Context, method string, err error) spillway.Outcome

	// MinBudget is the least time that the server must have had for a missed deadline to count against it. A call that had
	// less is [spillway.Ignored], so that a caller in a hurry cannot trip a breaker for all. The budget of a method rises
	// to the time in which nine of ten of its calls finish, measured on calls that were not in a hurry. The time of a
	// stream runs from the last message or CloseSend on, and while the caller reads; before CloseSend it owes no answer.
	// If MinBudget is 0, it is 100 ms.
	MinBudget time.Duration

	// Code is the status of a refused call: codes.Unavailable, or codes.ResourceExhausted.
	// If Code is 0, it is codes.Unavailable.
	Code codes.Code
}

// NewClient returns a Client in front of whatever connection it is handed to. If o is nil, it has the defaults. The error
// names what is invalid: a nil gate, or a field of o and its value.
func NewClient(gate *spillway.Gate, o *ClientOptions) (*Client, error) {
	if gate == nil {
		return nil, errors.New("grpcgate: gate: must be a Gate, got nil")
	}
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Client{gate: gate, o: opts, took: newLatencies(opts.MinBudget), open: newPlaces(opts.MaxStreams)}, nil
}

func (o *ClientOptions) withDefaults() (ClientOptions, error) {
	var out ClientOptions
	if o != nil {
		out = *o
	}
	var err error
	if out.MaxStreams, err = maxStreams(out.MaxStreams); err != nil {
		return out, err
	}
	if out.MinBudget, err = minBudget(out.MinBudget); err != nil {
		return out, err
	}
	if out.Code, err = refusalCode(out.Code, codes.Unavailable); err != nil {
		return out, err
	}
	if out.Request == nil {
		out.Request = requestOfTarget
	}
	if out.Stream == nil {
		out.Stream = detachAll
	}
	if out.Outcome == nil {
		out.Outcome = clientOutcomeByCode
	}
	return out, nil
}

func clientOutcomeByCode(_ context.Context, _ string, err error) spillway.Outcome {
	return DefaultClientOutcome(err)
}

func requestOfTarget(_ context.Context, conn *grpc.ClientConn, _ string) spillway.Request {
	return spillway.Request{Key: conn.Target()}
}

// ClientStats is a snapshot of what a [Client] knows beyond what its [spillway.Gate] counts.
type ClientStats struct {
	Streams        int64 // streams that have left the gate and are open now
	StreamsRefused int64 // streams refused because ClientOptions.MaxStreams were open; the Gate did not see them

	// Leaked counts the streams that were neither read to the end nor given up by their context. Each held its place until the
	// garbage collector found it, so it should be 0.
	Leaked int64
}

// Stats returns a snapshot of the counts. It may be called at any time.
func (c *Client) Stats() ClientStats {
	return ClientStats{Streams: c.open.taken.Load(), StreamsRefused: c.open.refused.Value(), Leaked: c.leaked.Load()}
}

// Unary is a grpc.UnaryClientInterceptor.
func (c *Client) Unary(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	permit, err := c.gate.Enter(ctx, c.o.Request(ctx, conn, method))
	if err != nil {
		return c.refusal(err)
	}
	defer permit.Done(spillway.Failure) // covers panics
	err = invoker(ctx, method, req, reply, conn, opts...)
	if err == nil {
		c.succeeded(ctx, method, &permit)
		return nil
	}
	o := c.outcome(ctx, method, err, allotted(ctx, permit.Arrived()))
	permit.DoneAt(time.Time{}, o, wish(o, err))
	return err
}

// succeeded ends a unary call that was answered.
func (c *Client) succeeded(ctx context.Context, method string, permit *spillway.Permit) {
	o := c.o.Outcome(ctx, method, nil)
	arrived := permit.Arrived()
	latency := time.Since(arrived)
	now := arrived.Add(latency)
	permit.DoneAt(now, o, 0)
	if o == spillway.Success {
		c.took.observe(ctx, method, arrived, latency, now)
	}
}

// outcome says how a call went that has ended with err, and whose server had so much time.
func (c *Client) outcome(ctx context.Context, method string, err error, had time.Duration) spillway.Outcome {
	if err != nil && (!sendable(method) || codeOf(err) == codes.DeadlineExceeded && c.took.unfair(method, had)) {
		return spillway.Ignored
	}
	return c.o.Outcome(ctx, method, err)
}

// sendable reports whether method can stand in a header of HTTP/2. A server resets the stream of any other.
func sendable(method string) bool {
	for i := range len(method) {
		if b := method[i]; b < ' ' || b > '~' {
			return false
		}
	}
	return true
}

// maxWish is the longest wish of a server that is believed.
const maxWish = 24 * time.Hour

// wish returns for how long the server asked to be left alone by the RetryInfo of err, or 0.
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
		return &localError{rej: rej, code: c.o.Code}
	}
	return status.FromContextError(err).Err()
}

// textLocal is the message of a call that was not made. A handler that made the call may hand it on to a remote caller, so
// it does not name the policy.
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
