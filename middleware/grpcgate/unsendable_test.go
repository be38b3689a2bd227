package grpcgate_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// What gRPC says of a message that is too large is no overload, in whatever language the server is written.
func TestMessagesThatAreTooLargeAreIgnored(t *testing.T) {
	for _, text := range []string{
		"grpc: received message larger than max (131077 vs. 65536)",
		"grpc: received message after decompression larger than max 65536",
		"grpc: message after decompression larger than max (65537 vs. 65536)",
		"grpc: message too large (5000000000 bytes)",
		"trying to send message larger than max (524296 vs. 262144)",
		"Received message larger than max (5000000 vs. 4194304)",
		"SERVER: Received message larger than max (5000000 vs. 4194304)",
		"gRPC message exceeds maximum size 4194304: 5000000",
		"Received message exceeds the maximum configured message size.",
	} {
		err := status.Error(codes.ResourceExhausted, text)
		for _, err := range []error{err, fmt.Errorf("wrapped: %w", err)} {
			require.Equal(t, spillway.Ignored, grpcgate.DefaultOutcome(err), text)
			require.Equal(t, spillway.Ignored, grpcgate.DefaultClientOutcome(err), text)
		}
	}
	for _, text := range []string{"", "overloaded", "too many messages", "queue larger than max"} {
		require.Equal(t, spillway.Dropped, grpcgate.DefaultClientOutcome(status.Error(codes.ResourceExhausted, text)), text)
	}
}

func TestInternalErrorsOfTheMessage(t *testing.T) {
	for _, text := range []string{
		"grpc: error while marshaling: string field contains invalid UTF-8",
		"grpc: error while compressing: oops",
		"grpc: failed to unmarshal the received message: proto: cannot parse invalid wire-format data",
		"grpc: failed to decompress the received message: unexpected EOF",
		"grpc: failed to decompress the message: gzip: invalid header",
		"grpc: failed to read decompressed data: gzip: invalid checksum",
		`grpc: Compressor is not installed for requested grpc-encoding "x"`,
		`grpc: Decompressor is not installed for grpc-encoding "x"`,
		"grpc: compressed flag set with identity or empty encoding",
		"grpc: received unexpected payload format 7",
		"cardinality violation: received no request message from non-client-streaming RPC",
		`malformed binary metadata "!!!" in header "x-bin": illegal base64 data`,
		`header key "x" contains value with non-printable ASCII characters`,
		"there is an empty key in the header",
		"header list size to send violates the maximum size (16384 bytes) set by server",
		"peer header list size exceeded limit",
		"stream terminated by RST_STREAM with error code: FRAME_SIZE_ERROR",
		"SendMsg called after CloseSend",
		"transport: per-RPC creds failed due to error: no token",
	} {
		require.Equal(t, spillway.Ignored, grpcgate.DefaultClientOutcome(status.Error(codes.Internal, text)), text)
		require.Equal(t, spillway.Failure, grpcgate.DefaultClientOutcome(status.Error(codes.Unavailable, text)), "the code counts too")
	}
	for _, text := range []string{"", "bug", "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"} {
		require.Equal(t, spillway.Failure, grpcgate.DefaultClientOutcome(status.Error(codes.Internal, text)), text)
	}
}
