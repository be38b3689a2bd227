package grpcgate_test

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// A proxy is a client whose gate has one breaker for all callers, and makes calls as they want them.
type proxy struct {
	c    *grpcgate.Client
	seen *gatetest.Recorder
	brk  *breaker.Breaker
	conn *grpc.ClientConn
}

func newProxy(t *testing.T, mode grpcgate.StreamMode) *proxy {
	t.Helper()
	p := &proxy{seen: &gatetest.Recorder{}, brk: spillway.Must(breaker.New(nil))}
	p.c = gatedClient(t, &grpcgate.ClientOptions{Stream: always(mode), Request: requestOfTenant, MaxStreams: 100}, p.seen, p.brk)
	p.conn = start(t, true, victim(),
		[]grpc.ServerOption{grpc.MaxRecvMsgSize(messageSize), grpc.MaxHeaderListSize(1 << 14)},
		append(through(p.c), grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(messageSize), grpc.MaxCallSendMsgSize(4*messageSize))),
		func(srv *grpc.Server) { healthpb.RegisterHealthServer(srv, health.NewServer()) })
	return p
}

func requestOfTenant(ctx context.Context, _ *grpc.ClientConn, _ string) spillway.Request {
	md, _ := metadata.FromOutgoingContext(ctx)
	if v := md.Get("tenant"); len(v) > 0 {
		return spillway.Request{Key: v[0]}
	}
	return spillway.Request{}
}

// After none of these attacks by callers does an innocent one get another answer than before.
func TestAttacksOnAClientByItsCallers(t *testing.T) {
	attacks := maps.Clone(callerAttacks())
	require.GreaterOrEqual(t, len(attacks), 40)
	for mode, m := range streamModes {
		for name, attack := range attacks {
			t.Run(mode+"/"+name, func(t *testing.T) {
				t.Parallel()
				p := newProxy(t, m)
				before := innocent(t, p.conn)
				attack(t, p)
				require.Equal(t, before, innocent(t, p.conn))
				require.Equal(t, breaker.Closed, p.brk.Stats().State)
				require.Eventually(t, func() bool { return p.seen.InFlight() == 0 && p.c.Stats().Streams == 0 },
					time.Minute, 5*time.Millisecond, "nothing is left behind")
				require.NotContains(t, p.seen.Outcomes(), spillway.Failure)
				require.NotContains(t, p.seen.Outcomes(), spillway.Dropped)
			})
		}
	}
}

type callerAttack func(t *testing.T, p *proxy)

func callerAttacks() map[string]callerAttack {
	huge, hugeForServer := strings.Repeat("x", 8*messageSize), strings.Repeat("x", 2*messageSize)
	return map[string]callerAttack{
		"deadlines that have passed":             call(echoMethod, "hang", -time.Second),
		"deadlines of 1 ms":                      call(echoMethod, "hang", time.Millisecond),
		"deadlines of 1 ms on a stream":          call(downMethod, "hang", time.Millisecond),
		"deadlines just below the budget":        call(echoMethod, "hang", 99*time.Millisecond),
		"deadlines of 130 ms on a method of 300": hurriedCall(echoMethod),
		"deadlines of 130 ms on a stream of 900": hurriedCall(downMethod),
		"cancelled before the answer":            cancelledCall(echoMethod),
		"cancelled streams":                      cancelledCall(downMethod),
		"cancelled chats":                        cancelledCall(chatMethod),
		"invalid UTF-8 in a call":                call(echoMethod, "\xff\xfe", 0),
		"invalid UTF-8 in a stream":              call(downMethod, "\xff\xfe", 0),
		"invalid UTF-8 in an upload":             call(upMethod, "\xff\xfe", 0),
		"invalid UTF-8 on the wire":              wire(echoMethod, text("\xff\xfe")),
		"invalid UTF-8 on the wire of a stream":  wire(downMethod, text("\xff\xfe")),
		"truncated protobuf":                     wire(echoMethod, []byte{0x0a, 0x7f, 'x'}),
		"too large to send":                      call(echoMethod, huge, 0),
		"too large to send in a stream":          call(downMethod, huge, 0),
		"too large to send in an upload":         call(upMethod, huge, 0),
		"too large for the server":               call(echoMethod, hugeForServer, 0),
		"too large for the server in a stream":   call(downMethod, hugeForServer, 0),
		"a bomb":                                 call(echoMethod, hugeForServer, 0, grpc.UseCompressor("gzip")),
		"a bomb in a stream":                     call(downMethod, hugeForServer, 0, grpc.UseCompressor("gzip")),
		"asks for a huge answer":                 call(echoMethod, "big", 0),
		"asks for a huge answer of a stream":     call(downMethod, "big", 0),
		"asks for an answer of no UTF-8":         call(echoMethod, "garble", 0),
		"asks for a stream of no UTF-8":          call(downMethod, "garble", 0),
		"unauthenticated":                        call(echoMethod, "code UNAUTHENTICATED", 0),
		"not found in a stream":                  call(downMethod, "code NOT_FOUND", 0),
		"unknown methods":                        call("/test.Test/Nothing", "", 0),
		"unknown services":                       call("/no.Such/Thing", "", 0),
		"malformed methods":                      call("malformed", "", 0),
		"a line break in the method":             call("/test.Test/Echo\r\nx: y", "", 0),
		"a method of no ASCII":                   call("/test.Test/\xff", "", 0),
		"a line break in the metadata":           withMetadata("x", "a\nb"),
		"a forbidden key of metadata":            withMetadata("X Y", "a"),
		"an empty key of metadata":               withMetadata("", "a"),
		"too much metadata":                      withMetadata("x", strings.Repeat("x", 1<<15)),
		"a message that is none":                 noMessage,
		"a compressor that is none":              call(echoMethod, "hello", 0, grpc.UseCompressor("none-such")),
		"credentials that fail":                  call(echoMethod, "hello", 0, grpc.PerRPCCredentials(noCredentials{})),
		"no room for the answer":                 call(echoMethod, "hello", 0, grpc.MaxCallRecvMsgSize(1)),
		"no room for the message":                call(downMethod, "hello", 0, grpc.MaxCallSendMsgSize(1)),
		"sends after the end":                    sendsOn,
		"stalls before the first message":        stalledCall(0),
		"stalls after the first message":         stalledCall(1),
		"does not read":                          unread,
		"takes all places":                       allClientPlaces,
		"waits for the server":                   call(echoMethod, "hang", 99*time.Millisecond, grpc.WaitForReady(true)),
		"leaves after the header":                leaves(downMethod, func(s grpc.ClientStream) { _, _ = s.Header() }),
		"leaves after a message":                 leaves(downMethod, func(s grpc.ClientStream) { _, _ = receive(s) }),
		"leaves half a chat":                     leaves(chatMethod, func(s grpc.ClientStream) { _, _ = receive(s); _ = send(s, "more") }),
		"watches the health, and leaves":         watches,
	}
}

// leaves opens streams, does something with them and cancels them.
func leaves(method string, do func(s grpc.ClientStream)) callerAttack {
	return func(t *testing.T, p *proxy) {
		t.Helper()
		repeat(func(int) {
			ctx, cancel := attackContext(0)
			defer cancel()
			stream, err := openStream(ctx, p.conn, method)
			if err != nil {
				return
			}
			_ = send(stream, "hello")
			do(stream)
		})
	}
}

func watches(t *testing.T, p *proxy) {
	t.Helper()
	repeat(func(i int) {
		ctx, cancel := attackContext(0)
		defer cancel()
		watch, err := healthpb.NewHealthClient(p.conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil && i%2 == 0 {
			_, _ = watch.Recv()
		}
	})
}

// call makes calls of method by a caller who wants it all wrong.
func call(method, text string, timeout time.Duration, o ...grpc.CallOption) callerAttack {
	return func(t *testing.T, p *proxy) {
		t.Helper()
		repeat(func(int) {
			ctx, cancel := attackContext(timeout)
			defer cancel()
			one(ctx, p, method, text, o...)
		})
	}
}

// one makes one call of any method, and reads to the end.
func one(ctx context.Context, p *proxy, method, text string, o ...grpc.CallOption) {
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	switch method {
	case downMethod:
		desc.ClientStreams = false
	case upMethod:
		desc.ServerStreams = false
	case chatMethod:
	default:
		_ = p.conn.Invoke(ctx, method, wrapperspb.String(text), &wrapperspb.StringValue{}, o...)
		return
	}
	stream, err := p.conn.NewStream(ctx, desc, method, o...)
	if err != nil {
		return
	}
	_ = send(stream, text) // RecvMsg tells why not
	_ = stream.CloseSend()
	for err == nil {
		_, err = receive(stream)
	}
}

func hurriedCall(method string) callerAttack {
	return func(t *testing.T, p *proxy) {
		t.Helper()
		teach(t, func(ctx context.Context) { one(ctx, p, method, "slow") })
		call(method, "slow", 130*time.Millisecond)(t, p)
	}
}

func cancelledCall(method string) callerAttack {
	return func(t *testing.T, p *proxy) {
		t.Helper()
		repeat(func(i int) {
			ctx, cancel := attackContext(5 * time.Minute)
			time.AfterFunc(time.Duration(i%3)*10*time.Millisecond, cancel)
			one(ctx, p, method, "hang")
		})
	}
}

func wire(method string, message []byte) callerAttack {
	return func(t *testing.T, p *proxy) {
		t.Helper()
		repeat(func(int) {
			ctx, cancel := attackContext(0)
			defer cancel()
			_ = drain(ctx, p.conn, method, message)
		})
	}
}

func withMetadata(key, value string) callerAttack {
	return func(t *testing.T, p *proxy) {
		t.Helper()
		repeat(func(i int) {
			ctx, cancel := attackContext(0)
			defer cancel()
			ctx = metadata.NewOutgoingContext(ctx, metadata.MD{"tenant": {"mallory"}, key: {value}})
			one(ctx, p, []string{echoMethod, downMethod}[i%2], "hello")
		})
	}
}

func noMessage(t *testing.T, p *proxy) {
	t.Helper()
	repeat(func(int) {
		ctx, cancel := attackContext(0)
		defer cancel()
		require.Error(t, p.conn.Invoke(ctx, echoMethod, "none", &wrapperspb.StringValue{}))
		stream, err := openStream(ctx, p.conn, chatMethod)
		if err == nil {
			_ = stream.SendMsg("none")
		}
	})
}

type noCredentials struct{}

func (noCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, errors.New("no token")
}
func (noCredentials) RequireTransportSecurity() bool { return false }

func sendsOn(t *testing.T, p *proxy) {
	t.Helper()
	repeat(func(int) {
		ctx, cancel := attackContext(0)
		defer cancel()
		stream, err := openStream(ctx, p.conn, chatMethod)
		if err != nil {
			return
		}
		_ = stream.CloseSend()
		_ = send(stream, "more")
	})
}

// stalledCall opens streams that would go on, sends n messages and waits for the deadline in RecvMsg.
func stalledCall(n int) callerAttack {
	return func(t *testing.T, p *proxy) {
		t.Helper()
		repeat(func(int) {
			ctx, cancel := attackContext(250 * time.Millisecond)
			defer cancel()
			stream, err := openStream(ctx, p.conn, upMethod)
			if err != nil {
				return
			}
			for range n {
				_ = send(stream, "hello")
			}
			_, _ = receive(stream)
		})
	}
}

// unread asks for streams and reads one message late, if at all.
func unread(t *testing.T, p *proxy) {
	t.Helper()
	repeat(func(i int) {
		ctx, cancel := attackContext(250 * time.Millisecond)
		defer cancel()
		stream, err := openStream(ctx, p.conn, downMethod)
		if err != nil {
			return
		}
		_ = send(stream, "hello")
		_ = stream.CloseSend()
		if i%2 == 0 {
			<-ctx.Done()
		} else {
			_, _ = receive(stream)
			<-ctx.Done()
		}
		_, _ = receive(stream)
	})
}

func allClientPlaces(t *testing.T, p *proxy) {
	t.Helper()
	before := innocent(t, p.conn)
	ctx, cancel := context.WithCancel(as("mallory"))
	defer cancel()
	var open []grpc.ClientStream
	for range 120 {
		stream, err := openStream(ctx, p.conn, chatMethod)
		if err != nil {
			require.ErrorIs(t, err, spillway.ErrRejected)
			continue
		}
		_ = send(stream, "hello")
		_, _ = receive(stream)
		open = append(open, stream)
	}
	require.Equal(t, before, innocent(t, p.conn), "while they are open")
	runtime.KeepAlive(open)
}
