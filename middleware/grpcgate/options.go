package grpcgate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/spillway-go/spillway"
)

const (
	// defaultMaxStreams bounds what idle streams may hold: at some 20 KiB each, about 200 MiB.
	defaultMaxStreams = 10_000
	defaultMinBudget  = 100 * time.Millisecond
)

// A Call describes a call to the policies and to the check of deadlines. The zero Call has no key.
type Call struct {
	spillway.Request

	// Deadline is when the caller stops waiting, if that is earlier than the deadline of the context. It lets
	// a call be refused that would be too late; it does not end a call that runs.
	// If Deadline is zero, the deadline of the context counts alone.
	Deadline time.Time
}

// A StreamMode says how long a stream is in flight.
type StreamMode uint8

// The modes of streams. In each of them a stream passes the gate when it is opened.
const (
	// DetachStream lets a stream leave the gate once it is open. On a server that is at once, with [spillway.Ignored]. On
	// a client it is when the server has shown a sign of life, with [spillway.Success]: the first message or the header.
	DetachStream StreamMode = iota

	// PerMessage is DetachStream, and each message passes the gate as well. On a server that is a message received: it is
	// in flight until the handler asks for the next or returns, and if it is refused, RecvMsg returns the error with which
	// the handler should end the stream. On a client it is a message sent: it is in flight until the next answer, and if
	// it is refused, SendMsg returns the error and the stream goes on.
	PerMessage

	// WholeStream keeps a stream in flight until it ends. It is for streams that are work, such as an export or an upload.
	WholeStream
)

// Options says how a [Server] sees calls. The zero Options consists entirely of defaults. Its functions are called from
// many goroutines at once.
type Options struct {
	// Call describes a call to method, such as /package.Service/Method: its key, priority, cost and deadline. It can ask
	// ctx for the peer (peer.FromContext) and the metadata (metadata.ValueFromIncomingContext). What a client puts into its
	// metadata counts only if Call reads it: a key that the client can choose at will gives every call a share of its own.
	// Call runs before the gate, by [Server.Tap] and again by the interceptor. It has to be cheap; in the tap, method may be
	// one that the server does not have.
	// If Call is nil, every call is the zero Call.
	Call func(ctx context.Context, method string) Call

	// Exempt reports whether calls to method pass by the gate: they are neither limited nor measured, only counted.
	// If Exempt is nil, it is [DefaultExempt].
	Exempt func(method string) bool

	// Stream says how long the streams of method are in flight. If Stream is nil, all are [DetachStream].
	Stream func(method string) StreamMode

	// MaxStreams is how many streams that have left the gate may be open at once, and how many exempt ones; one more is
	// refused. A client may open one more as long as it has fewer than are free, so one client alone gets half of them, and
	// there is room for a newcomer. A client is the Key of its calls or, without one and for exempt streams, its address,
	// and 64 bits of that for IPv6. If MaxStreams is 0, it is 10000.
	MaxStreams int

	// AdmitLate lets in unary calls that will hardly finish before their deadline. If AdmitLate is false, a call is refused
	// if it has less time left than one in twenty of its method needed; now and then one is let in as a probe.
	AdmitLate bool

	// Outcome says how a call to method went that returned err, or [context.DeadlineExceeded] if its deadline has passed.
	// It is not asked about a call whose client is gone, which is [spillway.Ignored], about a missed deadline that left
	// too little time (MinBudget), nor about a stream that its client broke, by a message that cannot be read or by stalling until the
	// deadline: those are Ignored too. Nor is it asked about a handler that panics or exits its goroutine, which is a
	// [spillway.Failure].
	// If Outcome is nil, it is [DefaultOutcome] of err.
	Outcome func(ctx context.Context, method string, err error) spillway.Outcome

	// MinBudget is the least time that the service must have had for a missed deadline to count against it. A call that had
	// less is [spillway.Ignored], so that a client in a hurry cannot trip a breaker for all. The budget of a method rises
	// to the time in which nine of ten of its calls finish, measured on calls that were not in a hurry. The time that a
	// stream waited for its client does not count. If MinBudget is 0, it is 100 ms.
	MinBudget time.Duration

	// Code is the status of a call refused for lack of room: codes.ResourceExhausted, or codes.Unavailable, which many
	// clients retry at once. A caller that used up its own share gets codes.ResourceExhausted in any case.
	// If Code is 0, it is codes.ResourceExhausted.
	Code codes.Code
}

// withDefaults returns a copy of o whose fields are all set. The error names the field and its value.
func (o *Options) withDefaults() (Options, error) {
	var out Options
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
	if out.Code, err = refusalCode(out.Code, codes.ResourceExhausted); err != nil {
		return out, err
	}
	if out.Call == nil {
		out.Call = func(context.Context, string) Call { return Call{} }
	}
	if out.Exempt == nil {
		out.Exempt = DefaultExempt
	}
	if out.Stream == nil {
		out.Stream = detachAll
	}
	if out.Outcome == nil {
		out.Outcome = outcomeByCode
	}
	return out, nil
}

func detachAll(string) StreamMode { return DetachStream }

func outcomeByCode(_ context.Context, _ string, err error) spillway.Outcome {
	return DefaultOutcome(err)
}

func maxStreams(n int) (int, error) {
	if n < 0 {
		return 0, fmt.Errorf("grpcgate: MaxStreams: must be at least 0, got %d", n)
	}
	if n == 0 {
		return defaultMaxStreams, nil
	}
	return n, nil
}

func minBudget(d time.Duration) (time.Duration, error) {
	if d < 0 {
		return 0, fmt.Errorf("grpcgate: MinBudget: must be at least 0, got %v", d)
	}
	if d == 0 {
		return defaultMinBudget, nil
	}
	return d, nil
}

func refusalCode(c, otherwise codes.Code) (codes.Code, error) {
	switch c {
	case codes.OK:
		return otherwise, nil
	case codes.ResourceExhausted, codes.Unavailable:
		return c, nil
	}
	return 0, fmt.Errorf("grpcgate: Code: must be ResourceExhausted or Unavailable, got %v", c)
}

// DefaultExempt reports whether method is one of the health service or of server reflection. To exempt more, call it from
// your own:
//
//	Exempt: func(m string) bool { return m == "/admin.Admin/Drain" || grpcgate.DefaultExempt(m) }
func DefaultExempt(method string) bool {
	return strings.HasPrefix(method, "/grpc.") &&
		(strings.HasPrefix(method, "/grpc.health.v1.Health/") ||
			strings.HasPrefix(method, "/grpc.reflection.v1.ServerReflection/") ||
			strings.HasPrefix(method, "/grpc.reflection.v1alpha.ServerReflection/"))
}
