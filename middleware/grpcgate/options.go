package grpcgate

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/orca"
)

const (
	// defaultMaxStreams bounds the memory of idle streams: at some 20 KiB each, about 200 MiB.
	defaultMaxStreams = 10_000
	defaultMinBudget  = 100 * time.Millisecond
)

// A StreamMode says how long a stream counts as in flight.
type StreamMode uint8

// The modes of streams. In each of them a stream passes the gate when it is opened.
const (
	// DetachStream lets a stream leave the gate once it is open. A server stream leaves at once, with
	// [spillway.Ignored]. A client stream leaves at the first sign of life of the server, the first message or the
	// header, with [spillway.Success].
	DetachStream StreamMode = iota

	// PerMessage is DetachStream, and each message passes the gate as well. On a server this applies to received
	// messages. A message is in flight until the handler asks for the next one or returns. If it is refused, RecvMsg
	// returns the error with which the handler should end the stream. On a client this applies to sent messages. A
	// message is in flight until the next answer. If it is refused, SendMsg returns the error and the stream continues.
	PerMessage

	// WholeStream keeps a stream in flight until it ends. Use it for streams that are work, such as an export or an
	// upload.
	WholeStream
)

// Options configure a [Server]. The zero Options consists entirely of defaults. Its functions may be called
// concurrently.
type Options struct {
	// Request describes a call to method, such as /package.Service/Method: its key, route, priority, cost and timeout. It
	// can ask ctx for the peer (peer.FromContext) and the metadata (metadata.ValueFromIncomingContext). The client's
	// metadata counts only if Request reads it; [NewPriority] reads a priority from trusted peers. Do not use a key that
	// the client can choose freely, because each call could then have its own share. Request runs before the gate, in
	// [Server.Tap] and again in the interceptor. It must be cheap. In the tap, method may be one that the server does not
	// have. If Request is nil, every call is the zero [spillway.Request]. A call without a route has its method as its
	// route; in the tap, only if such calls have succeeded. With a grpc.UnknownServiceHandler clients choose the method,
	// so Request should set the route.
	//
	// The time that the protocol leaves (grpc-timeout) need not be read. A positive Timeout may shorten it, and also ends
	// the context of a unary handler, so that the calls that the handler makes have the remaining time. See package
	// deadline for the policy that refuses calls with too little time.
	Request func(ctx context.Context, method string) spillway.Request

	// Exempt reports whether calls to method bypass the gate. Such calls are only counted, not limited or measured. If
	// Exempt is nil, it is [DefaultExempt].
	Exempt func(method string) bool

	// Stream says how long the streams of method are in flight. If Stream is nil, all are [DetachStream].
	Stream func(method string) StreamMode

	// MaxStreams is how many streams that have left the gate may be open at once, and separately how many exempt
	// streams; further streams are refused. A client may open one more as long as it has fewer streams than places are
	// free. So one client alone gets half of the places, and there is room for a new client. A client is identified by
	// the Key of its calls. Without a key, and for exempt streams, it is identified by its address, of which IPv6
	// counts 64 bits. If MaxStreams is 0, it is 10000.
	MaxStreams int

	// Outcome returns the outcome of a call to method. err is the handler's error, or [context.DeadlineExceeded] if the
	// deadline has passed. Some calls are [spillway.Ignored] without asking it: calls whose client is gone, missed
	// deadlines that left too little time (MinBudget), and streams that the client broke by an unreadable message or by
	// stalling until the deadline. A handler that panics or exits its goroutine is always a [spillway.Failure]. If
	// Outcome is nil, it is [DefaultOutcome] of err.
	Outcome func(ctx context.Context, method string, err error) spillway.Outcome

	// MinBudget is the shortest time budget for which a missed deadline counts against the service. A call that had
	// less time is [spillway.Ignored], so that very short deadlines cannot trip a breaker for all clients. Once 10
	// calls of a method with enough time have succeeded, their 99th percentile replaces MinBudget. The time that a
	// stream waited for its client does not count. If MinBudget is 0, it is 100 ms.
	MinBudget time.Duration

	// Code is the status of a call refused for lack of room: codes.ResourceExhausted, or codes.Unavailable, which many
	// clients retry at once. A caller over its own quota always gets codes.ResourceExhausted. If Code is 0, it is
	// codes.ResourceExhausted.
	Code codes.Code

	// LoadReport says which calls carry a load report in the trailer endpoint-load-metrics-bin, as the policy
	// weighted_round_robin of gRPC and other load balancers read it (ORCA): application_utilization is the demand of the
	// shedder, and may exceed 1; eps counts failures and refusals, except those of [Server.Tap], which have no trailer. It
	// is rendered once per 100 ms. Do not use orca.CallMetricsServerOption beside it. If LoadReport is 0, it is
	// [ReportOff].
	LoadReport LoadReport

	// TellClients tells clients that listen ([ClientOptions.ListenTo]) which calls to hold back under overload, in the
	// trailer spillway-overload: of each refused call, of all unary calls during and shortly after an overload, and of one
	// in 16 otherwise. Refusals of [Server.Tap] have no trailer. The figures are those of the shedder in the gate
	// ([shedder.Stats].HoldBack). Without a shedder, the trailer asks clients to send everything. It is rendered once per
	// 100 ms. Remove it where answers leave your network, because it tells strangers your load.
	//
	// [shedder.Stats]: https://pkg.go.dev/github.com/spillway-go/spillway/shedder#Stats
	TellClients bool
}

// A LoadReport says which calls carry a load report.
type LoadReport = orca.Mode

// The choices.
const (
	ReportOff       = orca.Off       // none
	ReportOnRequest = orca.OnRequest // those with the metadata endpoint-load-metrics-format
	ReportAlways    = orca.Always    // all
)

// withDefaults returns a copy of o whose fields are all set. The error names the field and its value.
func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Request == nil {
		out.Request = func(context.Context, string) spillway.Request { return spillway.Request{} }
	}
	if out.Exempt == nil {
		out.Exempt = DefaultExempt
	}
	if out.Outcome == nil {
		out.Outcome = func(_ context.Context, _ string, err error) spillway.Outcome { return DefaultOutcome(err) }
	}
	err := settle(&out.MaxStreams, &out.MinBudget, &out.Code, codes.ResourceExhausted, &out.Stream)
	return out, err
}

// settle sets the zero fields that servers and clients have in common to their defaults. The error names the field and
// its value.
func settle(maxStreams *int, minBudget *time.Duration, code *codes.Code, byDefault codes.Code, stream *func(string) StreamMode) error {
	*maxStreams = cmp.Or(*maxStreams, defaultMaxStreams)
	*minBudget = cmp.Or(*minBudget, defaultMinBudget)
	*code = cmp.Or(*code, byDefault)
	if *stream == nil {
		*stream = func(string) StreamMode { return DetachStream }
	}
	switch {
	case *maxStreams < 0:
		return fmt.Errorf("grpcgate: MaxStreams: must be at least 0, got %d", *maxStreams)
	case *minBudget < 0:
		return fmt.Errorf("grpcgate: MinBudget: must be at least 0, got %v", *minBudget)
	case *code != codes.ResourceExhausted && *code != codes.Unavailable:
		return fmt.Errorf("grpcgate: Code: must be ResourceExhausted or Unavailable, got %v", *code)
	}
	return nil
}

// DefaultExempt reports whether method belongs to the health service or to server reflection. To exempt more methods,
// call it from your own function:
//
//	Exempt: func(m string) bool { return m == "/admin.Admin/Drain" || grpcgate.DefaultExempt(m) }
func DefaultExempt(method string) bool {
	return strings.HasPrefix(method, "/grpc.") &&
		(strings.HasPrefix(method, "/grpc.health.v1.Health/") ||
			strings.HasPrefix(method, "/grpc.reflection.v1.ServerReflection/") ||
			strings.HasPrefix(method, "/grpc.reflection.v1alpha.ServerReflection/"))
}
