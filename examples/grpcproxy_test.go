package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const patience = 20 * time.Second

// A shop is a service of gRPC behind spillwayd.
type shop struct {
	pb.UnimplementedTestServiceServer

	begun chan struct{} // by calls that wait for their end
	ended chan error    // of these
}

// EmptyCall waits until the call ends.
func (s *shop) EmptyCall(ctx context.Context, _ *pb.Empty) (*pb.Empty, error) {
	s.begun <- struct{}{}
	<-ctx.Done()
	s.ended <- ctx.Err()
	return nil, ctx.Err()
}

// UnaryCall answers with the payload, the metadata and the status that the request asks for.
func (s *shop) UnaryCall(ctx context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	given, _ := metadata.FromIncomingContext(ctx)
	header, trailer := metadata.MD{}, metadata.MD{}
	header.Append("shop", given.Get("shop")...)
	trailer.Append("shop-bin", given.Get("shop-bin")...)
	if at, ok := ctx.Deadline(); ok {
		header.Set("left", time.Until(at).String())
	}
	if err := errors.Join(grpc.SetHeader(ctx, header), grpc.SetTrailer(ctx, trailer)); err != nil {
		return nil, err
	}
	if want := in.GetResponseStatus(); want.GetCode() != 0 {
		return nil, status.Error(codes.Code(want.GetCode()), want.GetMessage())
	}
	return &pb.SimpleResponse{Payload: in.GetPayload()}, nil
}

// HalfDuplexCall waits until the call ends.
func (s *shop) HalfDuplexCall(stream grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

// StreamingInputCall answers with the size of all requests.
func (s *shop) StreamingInputCall(stream grpc.ClientStreamingServer[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]) error {
	var size int32
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: size})
		}
		if err != nil {
			return err
		}
		size += int32(len(in.GetPayload().GetBody()))
	}
}

// StreamingOutputCall answers with messages of the sizes that the request asks for.
func (s *shop) StreamingOutputCall(in *pb.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	for _, p := range in.GetResponseParameters() {
		if err := stream.Send(answer(p.GetSize())); err != nil {
			return err
		}
	}
	stream.SetTrailer(metadata.Pairs("shop", "closed"))
	return nil
}

// FullDuplexCall answers each request at once.
func (s *shop) FullDuplexCall(stream grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.DataLoss, "the end: 100 % ☃")
		}
		if err != nil {
			return err
		}
		if err := stream.Send(answer(in.GetResponseParameters()[0].GetSize())); err != nil {
			return err
		}
	}
}

func answer(size int32) *pb.StreamingOutputCallResponse {
	return &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, size)}}
}

func request(size int32) *pb.StreamingOutputCallRequest {
	return &pb.StreamingOutputCallRequest{ResponseParameters: []*pb.ResponseParameters{{Size: size}}}
}

// A pair is a certificate for 127.0.0.1 that signs itself.
type pair struct {
	cert, key string // files
	tls       tls.Certificate
	pool      *x509.CertPool
}

func newPair(t *testing.T) *pair {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	text, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	p := &pair{cert: filepath.Join(t.TempDir(), "tls.crt"), pool: x509.NewCertPool()}
	p.key = strings.TrimSuffix(p.cert, "crt") + "key"
	cert, key := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})
	require.NoError(t, errors.Join(os.WriteFile(p.cert, cert, 0o600), os.WriteFile(p.key, key, 0o600)))
	p.tls, err = tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	require.True(t, p.pool.AppendCertsFromPEM(cert))
	return p
}

// buildSpillwayd returns the program, from this checkout.
func buildSpillwayd(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "spillwayd.exe")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = filepath.Join("..", "cmd", "spillwayd")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// startSpillwayd runs the program with a file, whose first listener has the address 127.0.0.1:0, and returns its address.
func startSpillwayd(t *testing.T, program, config string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "spillwayd.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.CommandContext(t.Context(), program, "-config", file)
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir())
	text, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		if _, address, found := strings.Cut(lines.Text(), `"address":"`); found {
			address, _, _ = strings.Cut(address, `"`)
			go func() { _, _ = io.Copy(io.Discard, text) }()
			return address
		}
	}
	require.Fail(t, "spillwayd did not start")
	return ""
}

// Clients and servers of grpc-go do not notice spillwayd between them, in clear text and with TLS to both sides.
func TestGRPCThroughSpillwayd(t *testing.T) {
	program := buildSpillwayd(t)
	for name, secure := range map[string]bool{"clear text": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			var (
				scheme, listen, backend = "h2c", "", "abandoned: 1ms"
				theirs                  []grpc.ServerOption
				ours                    = insecure.NewCredentials()
			)
			if secure {
				front, back := newPair(t), newPair(t)
				scheme, listen = "https", fmt.Sprintf(", tls: {cert: %q, key: %q}", front.cert, front.key)
				backend += fmt.Sprintf(", ca: %q", back.cert)
				theirs = append(theirs, grpc.Creds(credentials.NewServerTLSFromCert(&back.tls)))
				ours = credentials.NewClientTLSFromCert(front.pool, "")
			}
			service, server := &shop{begun: make(chan struct{}, 10), ended: make(chan error, 10)}, grpc.NewServer(theirs...)
			pb.RegisterTestServiceServer(server, service)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			go func() { _ = server.Serve(listener) }()
			defer server.Stop()
			address := startSpillwayd(t, program, fmt.Sprintf("listen: [{address: '127.0.0.1:0'%s}]\nadmin: {address: 'off'}\n"+
				"backend: {urls: ['%s://%s'], %s}\nshedder: {disabled: true}\nroutes:\n"+
				"  - {match: /grpc.testing.TestService/CacheableUnaryCall, name: one, rate: {rate: 1/h, burst: 1, per: all}}\n"+
				"  - {match: /grpc.testing.TestService/HalfDuplexCall, name: late, deadline: 50ms}\n", listen, scheme, listener.Addr(), backend))
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(ours))
			require.NoError(t, err)
			defer conn.Close()
			client := pb.NewTestServiceClient(conn)
			t.Run("calls", func(t *testing.T) { grpcCalls(t, client) })
			t.Run("streams", func(t *testing.T) { grpcStreams(t, client) })
			t.Run("ends", func(t *testing.T) { grpcEnds(t, client, service) })
			t.Run("refusals", func(t *testing.T) { grpcRefusals(t, client) })
			t.Run("no backend", func(t *testing.T) {
				server.Stop()
				_, err := client.UnaryCall(t.Context(), new(pb.SimpleRequest))
				require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
			})
		})
	}
}

func grpcCalls(t *testing.T, client pb.TestServiceClient) {
	body := bytes.Repeat([]byte("spillway "), 1<<17) // more than a window of HTTP/2
	ctx := metadata.AppendToOutgoingContext(t.Context(), "shop", "a", "shop", "b", "shop-bin", "\x00\xff\x01")
	for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
		var header, trailer metadata.MD
		out, err := client.UnaryCall(ctx, &pb.SimpleRequest{Payload: &pb.Payload{Body: body}}, append(options, grpc.Header(&header), grpc.Trailer(&trailer))...)
		require.NoError(t, err)
		require.Equal(t, body, out.GetPayload().GetBody())
		require.Equal(t, []string{"a", "b"}, header.Get("shop"))
		require.Equal(t, []string{"\x00\xff\x01"}, trailer.Get("shop-bin"))
		require.Empty(t, header.Get("left"))
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		message := fmt.Sprintf("%v: 100 %% ☃\n", code)
		_, err := client.UnaryCall(ctx, &pb.SimpleRequest{ResponseStatus: &pb.EchoStatus{Code: int32(code), Message: message}})
		require.Equal(t, code, status.Code(err))
		require.Equal(t, message, status.Convert(err).Message())
	}
	_, err := client.UnimplementedCall(ctx, new(pb.Empty))
	require.Equal(t, codes.Unimplemented, status.Code(err))
	// The service sees the time that is left.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var header metadata.MD
	_, err = client.UnaryCall(ctx, new(pb.SimpleRequest), grpc.Header(&header))
	require.NoError(t, err)
	left, err := time.ParseDuration(header.Get("left")[0])
	require.NoError(t, err)
	require.Positive(t, left)
	require.LessOrEqual(t, left, patience)
}

func grpcStreams(t *testing.T, client pb.TestServiceClient) {
	up, err := client.StreamingInputCall(t.Context())
	require.NoError(t, err)
	for range 100 {
		require.NoError(t, up.Send(&pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: make([]byte, 10_000)}}))
	}
	sum, err := up.CloseAndRecv()
	require.NoError(t, err)
	require.Equal(t, int32(1_000_000), sum.GetAggregatedPayloadSize())

	many := new(pb.StreamingOutputCallRequest)
	for range 100 {
		many.ResponseParameters = append(many.ResponseParameters, &pb.ResponseParameters{Size: 10_000})
	}
	down, err := client.StreamingOutputCall(t.Context(), many)
	require.NoError(t, err)
	for range 100 {
		out, err := down.Recv()
		require.NoError(t, err)
		require.Len(t, out.GetPayload().GetBody(), 10_000)
	}
	_, err = down.Recv()
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, []string{"closed"}, down.Trailer().Get("shop"))

	both, err := client.FullDuplexCall(t.Context())
	require.NoError(t, err)
	for i := range int32(50) { // each message passes at once
		require.NoError(t, both.Send(request(i)))
		out, err := both.Recv()
		require.NoError(t, err)
		require.Len(t, out.GetPayload().GetBody(), int(i))
	}
	require.NoError(t, both.CloseSend())
	_, err = both.Recv()
	require.Equal(t, codes.DataLoss, status.Code(err))
	require.Equal(t, "the end: 100 % ☃", status.Convert(err).Message())
}

// grpcEnds are ends of calls: by the client, by its deadline, and by the deadline of a route.
func grpcEnds(t *testing.T, client pb.TestServiceClient, service *shop) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // enough for the call to arrive on a busy machine
	_, err := client.EmptyCall(ctx, new(pb.Empty))
	cancel()
	require.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
	<-service.begun
	require.Error(t, <-service.ended)

	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-service.begun
		leave()
	}()
	_, err = client.EmptyCall(ctx, new(pb.Empty))
	require.Equal(t, codes.Canceled, status.Code(err), "%v", err)
	require.ErrorIs(t, <-service.ended, context.Canceled)

	stream, err := client.HalfDuplexCall(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
}

// A refusal is RESOURCE_EXHAUSTED, and tells clients when to try again. So retries wait for that long.
func grpcRefusals(t *testing.T, client pb.TestServiceClient) {
	_, err := client.CacheableUnaryCall(t.Context(), new(pb.SimpleRequest))
	require.Equal(t, codes.Unimplemented, status.Code(err), "it reaches the service")
	var trailer metadata.MD
	_, err = client.CacheableUnaryCall(t.Context(), new(pb.SimpleRequest), grpc.Trailer(&trailer))
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	require.Regexp(t, `^[1-9]\d{3,}$`, trailer.Get("grpc-retry-pushback-ms")[0])
}
