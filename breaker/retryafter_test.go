package breaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

func TestResultsRetryAfterLengthensTheOpenTime(t *testing.T) {
	b := spillway.Must(breaker.New(&breaker.Options{Consecutive: 1}))
	gate := spillway.New(b)
	permit, err := gate.Enter(context.Background(), spillway.Request{})
	require.NoError(t, err)
	permit.DoneAt(time.Time{}, spillway.Failure, 50*time.Second)
	require.Equal(t, breaker.Open, b.Stats().State)
	require.Greater(t, time.Until(b.Stats().NextProbe), 45*time.Second, "5 s, had the server not asked for more")
}
