package grpcgate_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// dial returns a connection to target that ends with the test.
func dial(t testing.TB, target string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

type serverAttack func(t *testing.T, tg *target)

// serverAttacks are those that a client of gRPC can make and, below, those that need frames of their own.
func serverAttacks() map[string]serverAttack {
	attacks := rawAttacks()
	maps.Copy(attacks, map[string]serverAttack{
		"deadlines that have passed":             unaryAttack("hang", -time.Second),
		"deadlines of 1 ms":                      unaryAttack("hang", time.Millisecond),
		"deadlines just below the budget":        unaryAttack("hang", 99*time.Millisecond),
		"deadlines of 130 ms on a method of 300": hurriedUnary,
		"deadlines of 130 ms on a stream of 900": hurriedStream,
		"cancelled before the answer":            cancelled(echoMethod, "hang"),
		"cancelled with a deadline of 5 min":     cancelledLate,
		"cancelled streams":                      cancelled(downMethod, "hang"),
		"cancelled uploads":                      cancelled(upMethod, "hello"),
		"invalid UTF-8 in a call":                bytesAttack(echoMethod, text("\xff\xfe")),
		"invalid UTF-8 in a stream":              bytesAttack(downMethod, text("\xff\xfe")),
		"invalid UTF-8 in an upload":             bytesAttack(upMethod, text("\xff\xfe")),
		"truncated protobuf in a call":           bytesAttack(echoMethod, []byte{0x0a, 0x7f, 'x'}),
		"truncated protobuf in a stream":         bytesAttack(downMethod, []byte{0x0a, 0x7f, 'x'}),
		"a huge message in a call":               bytesAttack(echoMethod, text(strings.Repeat("x", 2*messageSize))),
		"a huge message in a stream":             bytesAttack(downMethod, text(strings.Repeat("x", 2*messageSize))),
		"a huge message in an upload":            bytesAttack(upMethod, text(strings.Repeat("x", 2*messageSize))),
		"a bomb in a call":                       bytesAttack(echoMethod, text(strings.Repeat("x", 4*messageSize)), grpc.UseCompressor("gzip")),
		"a bomb in a stream":                     bytesAttack(downMethod, text(strings.Repeat("x", 4*messageSize)), grpc.UseCompressor("gzip")),
		"a bomb in an upload":                    bytesAttack(upMethod, text(strings.Repeat("x", 4*messageSize)), grpc.UseCompressor("gzip")),
		"asks for a huge answer":                 bytesAttack(echoMethod, text("big")),
		"asks for a huge answer of a stream":     bytesAttack(downMethod, text("big")),
		"asks for an answer of no UTF-8":         bytesAttack(echoMethod, text("garble")),
		"asks for a stream of no UTF-8":          bytesAttack(downMethod, text("garble")),
		"unauthenticated":                        bytesAttack(echoMethod, text("code UNAUTHENTICATED")),
		"invalid arguments in a stream":          bytesAttack(downMethod, text("code INVALID_ARGUMENT")),
		"unknown methods":                        bytesAttack("/test.Test/Nothing", nil),
		"unknown services":                       bytesAttack("/no.Such/Thing", nil),
		"malformed methods":                      bytesAttack("/malformed", nil),
		"stalls before the first message":        stalled(0),
		"stalls after the first message":         stalled(1),
		"does not read":                          notReading,
		"takes all places":                       allPlaces,
		"takes all exempt places":                allExempt,
		"a thousand fields of metadata":          manyFields,
		"a keepalive of gRPC that pings":         pingingClient,
	})
	return attacks
}

func attackContext(timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	return context.WithTimeout(as("mallory"), timeout)
}

func unaryAttack(text string, timeout time.Duration) serverAttack {
	return func(t *testing.T, tg *target) {
		t.Helper()
		conn := tg.attacker(t)
		repeat(func(int) {
			ctx, cancel := attackContext(timeout)
			defer cancel()
			_, _ = echo(ctx, conn, text)
		})
	}
}

// teach lets innocent callers show how long text takes.
func teach(t *testing.T, call func(ctx context.Context)) {
	t.Helper()
	repeat(func(int) { call(as("alice")) })
}

func hurriedUnary(t *testing.T, tg *target) {
	t.Helper()
	teach(t, func(ctx context.Context) { _, _ = echo(ctx, tg.conn, "slow") })
	unaryAttack("slow", 130*time.Millisecond)(t, tg)
}

func hurriedStream(t *testing.T, tg *target) {
	t.Helper()
	conn := tg.attacker(t)
	slow := func(ctx context.Context) { drain(ctx, conn, downMethod, text("slow")) }
	teach(t, slow)
	repeat(func(int) {
		ctx, cancel := attackContext(130 * time.Millisecond)
		defer cancel()
		slow(ctx)
	})
}

// raw is a message that encodes as it is.
type raw []byte

// rawCodec sends raw messages as they are, and reads nothing.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)       { return v.(raw), nil }
func (rawCodec) Unmarshal(_ []byte, _ any) error     { return nil }
func (rawCodec) Name() string                        { return "proto" }
func rawCall(o ...grpc.CallOption) []grpc.CallOption { return append(o, grpc.ForceCodec(rawCodec{})) }

// drain makes one call of method with one message of these bytes, and reads to the end.
func drain(ctx context.Context, conn *grpc.ClientConn, method string, message []byte, o ...grpc.CallOption) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, rawCall(o...)...)
	if err != nil {
		return err
	}
	_ = stream.SendMsg(raw(message)) // RecvMsg tells why not
	_ = stream.CloseSend()
	for err == nil {
		err = stream.RecvMsg(nil)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func bytesAttack(method string, message []byte, o ...grpc.CallOption) serverAttack {
	return func(t *testing.T, tg *target) {
		t.Helper()
		conn := tg.attacker(t)
		repeat(func(int) {
			ctx, cancel := attackContext(0)
			defer cancel()
			_ = drain(ctx, conn, method, message, o...)
		})
	}
}

func cancelled(method, message string) serverAttack {
	return func(t *testing.T, tg *target) {
		t.Helper()
		conn := tg.attacker(t)
		repeat(func(i int) {
			ctx, cancel := attackContext(0)
			defer cancel()
			time.AfterFunc(time.Duration(i%3)*10*time.Millisecond, cancel)
			_ = drain(ctx, conn, method, text(message))
		})
	}
}

func cancelledLate(t *testing.T, tg *target) {
	t.Helper()
	conn := tg.attacker(t)
	repeat(func(int) {
		ctx, cancel := attackContext(5 * time.Minute)
		time.AfterFunc(20*time.Millisecond, cancel)
		_, _ = echo(ctx, conn, "hang")
	})
}

// stalled opens streams that would go on, sends n messages and waits for the deadline.
func stalled(n int) serverAttack {
	return func(t *testing.T, tg *target) {
		t.Helper()
		conn := tg.attacker(t)
		repeat(func(i int) {
			ctx, cancel := attackContext(250 * time.Millisecond)
			defer cancel()
			stream, err := openStream(ctx, conn, []string{upMethod, chatMethod}[i%2])
			if err != nil {
				return
			}
			for range n {
				_ = send(stream, "hello")
			}
			for err == nil {
				_, err = receive(stream)
			}
		})
	}
}

// notReading asks for streams, never reads them, and waits for the deadline.
func notReading(t *testing.T, tg *target) {
	t.Helper()
	conn := tg.attacker(t, grpc.WithStaticStreamWindowSize(1<<16), grpc.WithStaticConnWindowSize(1<<16))
	repeat(func(int) {
		ctx, cancel := attackContext(250 * time.Millisecond)
		defer cancel()
		stream, err := openStream(ctx, conn, downMethod)
		if err != nil {
			return
		}
		_ = send(stream, "large")
		_ = stream.CloseSend()
		<-ctx.Done()
	})
}

// allPlaces opens more streams than there are places, and keeps them open while an innocent caller opens one.
func allPlaces(t *testing.T, tg *target) {
	t.Helper()
	conn := tg.attacker(t)
	before := innocent(t, tg.conn)
	ctx, cancel := context.WithCancel(as("mallory"))
	defer cancel()
	for range 120 {
		stream, err := openStream(ctx, conn, chatMethod)
		require.NoError(t, err)
		_ = send(stream, "hello")
		_, _ = receive(stream)
	}
	require.Equal(t, before, innocent(t, tg.conn), "while they are open")
}

func allExempt(t *testing.T, tg *target) {
	t.Helper()
	conn := tg.attacker(t)
	before := innocent(t, tg.conn)
	ctx, cancel := context.WithCancel(as("mallory"))
	defer cancel()
	open := 0
	for range 120 {
		watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		if _, err := watch.Recv(); err == nil {
			open++
		}
	}
	require.Equal(t, 50, open, "half of the places")
	require.Equal(t, int64(70), tg.s.Stats().StreamsRefused)
	require.Equal(t, before, innocent(t, tg.conn), "while they are open")
}

func manyFields(t *testing.T, tg *target) {
	t.Helper()
	conn := tg.attacker(t)
	repeat(func(int) {
		ctx, cancel := attackContext(0)
		defer cancel()
		md := metadata.MD{"tenant": make([]string, 1000), "grpc-retry-pushback-ms": make([]string, 1000)}
		ctx = metadata.NewOutgoingContext(ctx, md)
		var out wrapperspb.StringValue
		err := conn.Invoke(ctx, echoMethod, wrapperspb.String("hello"), &out)
		require.NotEqual(t, codes.OK, codeOfError(err))
	})
}
