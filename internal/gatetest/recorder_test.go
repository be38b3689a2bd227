package gatetest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
)

func TestRecorder(t *testing.T) {
	p := &gatetest.Recorder{}
	gate := spillway.New(p)
	at := time.Unix(1e9, 0)
	enter := func(key string) (spillway.Permit, error) {
		return gate.Enter(t.Context(), spillway.Request{Key: key, Arrived: at})
	}
	a, err := enter("a")
	require.NoError(t, err)
	_, err = enter("b")
	require.NoError(t, err)
	a.DoneAt(at.Add(time.Second), spillway.Dropped, 0)
	rej := &spillway.Rejection{Policy: "fake"}
	p.Refuse(rej)
	_, err = enter("c")
	require.Same(t, rej, err)
	p.Refuse(nil)
	_, err = enter("d")
	require.NoError(t, err)

	var keys []string
	for _, r := range p.Requests() {
		keys = append(keys, r.Key)
	}
	require.Equal(t, []string{"a", "b", "d"}, keys)
	require.Equal(t, []spillway.Result{{Outcome: spillway.Dropped, Latency: time.Second}}, p.Results())
	require.Equal(t, []spillway.Outcome{spillway.Dropped}, p.Outcomes())
	require.Equal(t, 2, p.InFlight())

	_, err = gatetest.Refusing(rej).Admit(t.Context(), spillway.Request{})
	require.Same(t, rej, err)
}
