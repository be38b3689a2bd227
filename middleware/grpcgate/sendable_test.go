package grpcgate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMethodsThatCanBeSent(t *testing.T) {
	for _, method := range []string{"", "/a.B/C", "/a b~"} {
		require.True(t, sendable(method), "%q", method)
	}
	for _, method := range []string{"/a\x1f", "/a\x7f", "\n", "/\xff"} {
		require.False(t, sendable(method), "%q", method)
	}
}
