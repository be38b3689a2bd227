package grpctext_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/grpctext"
)

// The tests of the adapters have all the texts; these are the shapes.
func TestUnsendable(t *testing.T) {
	for text, want := range map[string]bool{
		"grpc: failed to unmarshal the received message: string field contains invalid UTF-8": true,
		"grpc: received unexpected payload format 7":                                          true,
		"SERVER: Received message larger than max (5000000 vs. 4194304)":                      true,
		"the words grpc: error while marshaling: in the middle":                               false,
		"queue larger than max": false,
		"":                      false,
	} {
		require.Equal(t, want, grpctext.Unsendable(text), text)
	}
}
