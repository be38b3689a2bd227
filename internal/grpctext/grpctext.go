// Package grpctext reads the messages of gRPC statuses.
//
//	if code == codes.Internal && grpctext.Unsendable(message) {
//		// the content of the request is at fault
//	}
package grpctext

import "strings"

// Unsendable reports whether gRPC says in text that a message or the metadata of a call could not be sent, received or
// read because of its content or size. gRPC has no code for this: it uses INTERNAL, like for a bug, or
// RESOURCE_EXHAUSTED, like for an overload. The text may be percent-encoded, as in the field grpc-message.
func Unsendable(text string) bool { return codec(text) || tooLarge(text) }

// codec reports whether grpc-go says in text that it cannot encode or decode a message, or send its metadata.
func codec(text string) bool {
	for _, prefix := range [...]string{
		"grpc: error while marshaling: ",
		"grpc: error while compressing: ",
		"grpc: failed to unmarshal the received message",
		"grpc: failed to decompress the ",
		"grpc: failed to read decompressed data: ",
		"grpc: Compressor is not installed for ",
		"grpc: Decompressor is not installed for ",
		"grpc: compressed flag set with identity or empty encoding",
		"grpc: received unexpected payload format ",
		"cardinality violation: ",
		"malformed binary metadata ",
		"header key ",
		"there is an empty key in the header",
		"header list size to send violates the maximum size ",
		"peer header list size exceeded limit",
		"stream terminated by RST_STREAM with error code: FRAME_SIZE_ERROR",
		"SendMsg called after CloseSend",
		"transport: per-RPC creds failed due to error: ",
	} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// tooLarge reports whether text says that a message exceeds a limit, in the words of grpc-go and the C core, of grpc-java,
// or of grpc-dotnet.
func tooLarge(text string) bool {
	return strings.Contains(text, "essage larger than max") ||
		strings.Contains(text, "message after decompression larger than max") ||
		strings.HasPrefix(text, "grpc: message too large (") ||
		strings.HasPrefix(text, "gRPC message exceeds maximum size ") ||
		strings.Contains(text, "message exceeds the maximum configured message size")
}
