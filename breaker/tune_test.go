package breaker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

// What Options returns is complete, so Tune takes it back and changes nothing.
func TestOptionsAreThoseInForce(t *testing.T) {
	b := newBreaker(t, &breaker.Options{OpenFor: 2 * time.Second, WindowCalls: 10})
	o := b.Options()
	require.Equal(t, []any{10 * time.Second, 10, 2 * time.Second, time.Minute}, []any{o.Window, o.MinCalls, o.OpenFor, o.MaxOpen})
	require.NotZero(t, o.Seed)
	require.NoError(t, b.Tune(o))
	require.Equal(t, o, b.Options())
	require.NoError(t, b.Tune(breaker.Options{}))
	require.Equal(t, 5*time.Second, b.Options().OpenFor, "a zero field means its default")
	require.Equal(t, 10, b.Options().WindowCalls, "it cannot change")

	th := newThrottle(t, &breaker.ThrottleOptions{K: 3, Buckets: 20})
	to := th.Options()
	require.InDelta(t, 3, to.K, 0)
	require.NoError(t, th.Tune(to))
	require.Equal(t, to, th.Options())
	require.NoError(t, th.Tune(breaker.ThrottleOptions{}))
	require.InDelta(t, 2, th.Options().K, 0)
	require.Equal(t, 20, th.Options().Buckets)
}

func TestKeyedIsTuned(t *testing.T) {
	g, r := newKeyedRig(t, &breaker.KeyedOptions{MaxKeys: 3, MaxOpen: 0.5, New: quick(breaker.Options{Consecutive: 1})})
	keys := func() int64 { return r.Stats().Keys }
	ask := func(key string) {
		req := spillway.Request{Key: key, Arrived: g.now}
		if ticket, err := r.Admit(t.Context(), req); err == nil {
			r.Done(req, ticket, spillway.Result{Outcome: spillway.Success})
		}
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		ask(key)
	}
	require.EqualValues(t, 3, keys())

	o := r.Options()
	o.MaxKeys = 4
	require.NoError(t, r.Tune(o))
	require.InDelta(t, 0.5, r.Options().MaxOpen, 0)
	ask("e")
	require.EqualValues(t, 4, keys(), "there is room at once")

	o.MaxKeys = 1
	require.NoError(t, r.Tune(o))
	ask("f")
	require.EqualValues(t, 4, keys(), "keys in use stay")
	busy := []spillway.Request{{Key: "a", Arrived: g.now}, {Key: "b", Arrived: g.now}}
	tickets := make([]spillway.Ticket, len(busy))
	for i := range busy {
		ticket, err := r.Admit(t.Context(), busy[i])
		require.NoError(t, err)
		tickets[i] = ticket
	}
	g.now = g.now.Add(time.Minute)
	ask("g")
	require.EqualValues(t, 2, keys(), "idle keys are forgotten; those with calls under way leave no room")
	for i := range busy {
		r.Done(busy[i], tickets[i], spillway.Result{Outcome: spillway.Success})
	}
	g.now = g.now.Add(time.Minute)
	ask("g")
	require.EqualValues(t, 1, keys(), "idle keys make room for one")

	o.MaxKeys = -1
	require.EqualError(t, r.Tune(o), "breaker: Keyed: MaxKeys must be in 1..16777216, got -1")
	require.Equal(t, 1, r.Options().MaxKeys, "an error changes nothing")
	require.NoError(t, r.Tune(breaker.KeyedOptions{}))
	require.Equal(t, 1024, r.Options().MaxKeys)
	require.NotNil(t, r.Options().New)
}

// Tune takes complete Options: change those in force.
func ExampleBreaker_Tune() {
	b := spillway.Must(breaker.New(&breaker.Options{Consecutive: 5}))
	o := b.Options()
	o.OpenFor = 2 * time.Second
	fmt.Println(b.Tune(o), b.Options().Consecutive)
	o.Window = time.Hour
	fmt.Println(b.Tune(o))
	// Output:
	// <nil> 5
	// breaker: Tune: Window cannot change from 10s, got 1h0m0s
}
