package lease_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/lease"
)

func TestStatsInJSON(t *testing.T) {
	out, err := json.Marshal(lease.KeyStats{Source: cluster.FromLease, Err: errors.New("no Redis")})
	require.NoError(t, err)
	require.Contains(t, string(out), `"Source":"lease"`)
	require.Contains(t, string(out), `"Err":"no Redis"`)
	out, err = json.Marshal([]any{lease.KeyStats{}, lease.Stats{}})
	require.NoError(t, err)
	require.Contains(t, string(out), `"Err":null`)
}
