package httpgate_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestRetryBudgetFollowsA6(t *testing.T) {
	b, err := httpgate.NewRetryBudget(&httpgate.RetryBudgetOptions{MaxTokens: 10, TokenRatio: 0.1})
	require.NoError(t, err)
	require.True(t, b.Allow())
	for range 4 {
		b.Record(spillway.Failure)
	}
	require.True(t, b.Allow(), "6 of 10 left")
	b.Record(spillway.Dropped)
	require.False(t, b.Allow(), "5 of 10 left")
	b.Record(spillway.Ignored)
	require.False(t, b.Allow())
	b.Record(spillway.Success)
	require.InDelta(t, 5.1, b.Tokens(), 1e-9)
	require.True(t, b.Allow())
	for range 100 {
		b.Record(spillway.Failure)
	}
	require.Zero(t, b.Tokens())
	for range 1000 {
		b.Record(spillway.Success)
	}
	require.InDelta(t, 10, b.Tokens(), 1e-9)
}

func TestInvalidRetryBudgetOptionsAreNamed(t *testing.T) {
	nan := 0.0
	nan /= nan
	for want, o := range map[string]httpgate.RetryBudgetOptions{
		"httpgate: MaxTokens: must be from 1 to 1000, got -1":          {MaxTokens: -1},
		"httpgate: MaxTokens: must be from 1 to 1000, got 1001":        {MaxTokens: 1001},
		"httpgate: TokenRatio: must be from 0.001 to 1000, got -0.1":   {TokenRatio: -0.1},
		"httpgate: TokenRatio: must be from 0.001 to 1000, got 1001":   {TokenRatio: 1001},
		"httpgate: TokenRatio: must be from 0.001 to 1000, got 0.0009": {TokenRatio: 0.0009},
		"httpgate: TokenRatio: must be from 0.001 to 1000, got NaN":    {TokenRatio: nan},
	} {
		_, err := httpgate.NewRetryBudget(&o)
		require.EqualError(t, err, want)
	}
	b, err := httpgate.NewRetryBudget(&httpgate.RetryBudgetOptions{MaxTokens: 1000, TokenRatio: 0.1239})
	require.NoError(t, err)
	b.Record(spillway.Failure)
	b.Record(spillway.Success)
	require.InDelta(t, 999.123, b.Tokens(), 1e-9, "three decimals count")

	b, err = httpgate.NewRetryBudget(&httpgate.RetryBudgetOptions{TokenRatio: 1.001}) // 1.001 * 1000 < 1001
	require.NoError(t, err)
	b.Record(spillway.Failure)
	b.Record(spillway.Failure)
	b.Record(spillway.Success)
	require.InDelta(t, 9.001, b.Tokens(), 1e-9)
}

func TestRetryBudgetHearsOfEveryCallOnce(t *testing.T) {
	b, err := httpgate.NewRetryBudget(nil)
	require.NoError(t, err)
	o := &httpgate.TransportOptions{Budget: b}
	for range 3 {
		_, _ = transport(t, failing(errBroken), o).RoundTrip(outgoing(t.Context(), nil))
	}
	require.InDelta(t, 7, b.Tokens(), 1e-9)
	res, err := transport(t, responding(http.StatusOK, newBody("text", io.EOF)), o).RoundTrip(outgoing(t.Context(), nil))
	require.NoError(t, err)
	require.InDelta(t, 7, b.Tokens(), 1e-9, "not over yet")
	_, _ = io.ReadAll(res.Body)
	res.Body.Close()
	require.InDelta(t, 7.1, b.Tokens(), 1e-9)
	_, _ = transport(t, unsent(t), o, refuser{errFull}).RoundTrip(outgoing(t.Context(), nil))
	require.InDelta(t, 7.1, b.Tokens(), 1e-9, "a refusal of our own takes nothing")
}
