package name

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOr(t *testing.T) {
	for _, c := range []struct{ given, want, wrong string }{
		{given: "", want: "bucket"},
		{given: "checkout-db", want: "checkout-db"},
		{given: "per tenant/EU ~1", want: "per tenant/EU ~1"},
		{given: strings.Repeat("x", 64), want: strings.Repeat("x", 64)},
		{given: strings.Repeat("x", 65), wrong: `limiter: Bucket: Name must be at most 64 bytes, got 65 ("xxxxxxxxxxxxxxxx"...)`},
		{given: "a\nb", wrong: `limiter: Bucket: Name must be printable ASCII, got "a\nb"`},
		{given: "caisse-é", wrong: `limiter: Bucket: Name must be printable ASCII, got "caisse-é"`},
		{given: "\x7f", wrong: `limiter: Bucket: Name must be printable ASCII, got "\x7f"`},
	} {
		got, err := Or("limiter: Bucket", c.given, "bucket")
		if c.wrong != "" {
			require.EqualError(t, err, c.wrong)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

func TestKeep(t *testing.T) {
	for _, given := range []string{"", "db"} {
		got, err := Keep("breaker", "db", given)
		require.NoError(t, err)
		require.Equal(t, "db", got)
	}
	_, err := Keep("breaker", "db", "cache")
	require.EqualError(t, err, `breaker: Tune: Name cannot change from "db", got "cache"`)
}
