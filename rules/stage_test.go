package rules_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/rules"
	"github.com/spillway-go/spillway/shadow"
)

func newStage(t testing.TB, limit int) *rules.Stage {
	t.Helper()
	place := func() spillway.Policy { return spillway.Must(limiter.New(limiter.Concurrency{Limit: limit})) }
	stage, err := rules.NewStage(place(), place())
	require.NoError(t, err)
	return stage
}

// The numbers of a stage decide about their fraction of the requests, and the others about the rest.
func TestStage(t *testing.T) {
	stage := newStage(t, 5)
	gate := spillway.New(stage)
	set := newSet(t, map[string]rules.Target{
		"api": rules.Of(stage).Between(nil, limiter.Concurrency{Limit: 5000}), "other": rules.Of(newPlain()),
	})
	require.JSONEq(t, `{"schema": 1, "rules": {"api": {"Limit": 5}, "other": {"A": 1, "B": 2, "Inner": {"Depth": "0s"},
		"List": {"x": {"Share": 0.5}, "y": {"Share": 0.25}}, "Small": {}}}}`, string(set.Document()))

	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	flood := func() (share float64) { // of 1000 requests that do not end while the others come
		var held []*spillway.Permit
		for range 1000 {
			now = now.Add(time.Microsecond)
			if permit, err := gate.Enter(context.Background(), spillway.Request{Arrived: now}); err == nil {
				held = append(held, &permit)
			}
		}
		for _, permit := range held {
			permit.DoneAt(now, spillway.Success, 0)
		}
		return float64(len(held)) / 1000
	}
	require.Equal(t, .005, flood(), "without a stage, the first policy decides")

	require.NoError(t, set.Apply([]byte(`{"rules": {"api": {"Limit": 10}}, "stage": {"rules": {"api": {"Limit": 2000}}}}`)))
	require.Equal(t, .01, flood(), "enforce is 0: a dry run")
	require.Equal(t, []string{"api.Limit: 5 → 10", "stage.api.Limit: 5 → 2000"}, set.Versions()[1].Changes)

	staged := []byte(`{"rules": {"api": {"Limit": 10}}, "stage": {"enforce": 0.3, "rules": {"api": {"Limit": 2000}}}}`)
	require.NoError(t, set.Apply(staged))
	require.InDelta(t, .3, flood(), .05)
	require.Equal(t, []string{"stage.api.enforce: 0 → 0.3"}, set.Versions()[2].Changes)
	st := stage.Stats()
	require.Greater(t, st[0].WouldRefuse, st[0].Enforced, "it would have refused in the part of the other")
	require.Greater(t, st[0].RegretRefused, int64(200), "requests that the old numbers would have refused and that succeeded")
	require.Zero(t, st[1].WouldRefuse)
	document := string(set.Document())
	require.NoError(t, set.Apply([]byte(document)))
	require.Equal(t, document, string(set.Document()))
	require.Empty(t, set.Versions()[3].Changes)

	require.ErrorContains(t, set.Apply([]byte(`{"rules": {}, "stage": {"rules": {"api": {"Limit": 9000}}}}`)),
		"rules: stage.api.Limit must be above 0 and at most 5000, got 9000")
	require.ErrorContains(t, set.Apply([]byte(`{"rules": {}, "stage": {"rules": {"other": {}}}}`)), `no target "other" with a Stage`)
	require.InDelta(t, .3, flood(), .05)

	require.NoError(t, set.Apply([]byte(`{"rules": {"api": {"Limit": 2000}}}`)))
	require.Equal(t, 1., flood(), "the new numbers are in force")
	require.NoError(t, set.Apply([]byte(`{"rules": {}}`)))
	require.Equal(t, .005, flood())
	require.Zero(t, gate.Stats().InFlight)

	var schema struct{ Properties map[string]any }
	require.NoError(t, json.Unmarshal(set.Schema(), &schema))
	require.Contains(t, schema.Properties, "stage")
}

// The policy in force has the metrics of a policy without a Stage.
func TestMetricsOfStage(t *testing.T) {
	stage := newStage(t, 5)
	seen := map[string]bool{}
	for m := range stage.Metrics() {
		seen[fmt.Sprintf("%s %q", m.Name, m.Label("shadow"))] = true
	}
	for _, want := range []string{
		`spillway.limiter.in_flight ""`, `spillway.limiter.in_flight "1"`, `spillway.shadow.regrets "0"`, `spillway.shadow.regrets "1"`,
	} {
		require.True(t, seen[want], "%s of %v", want, seen)
	}
	require.False(t, seen[`spillway.limiter.in_flight "0"`])
}

func TestNewStageRefuses(t *testing.T) {
	p := spillway.Must(limiter.New(limiter.Concurrency{Limit: 1}))
	q := spillway.Must(limiter.New(limiter.Concurrency{Limit: 2}))
	for want, pair := range map[string][2]spillway.Policy{
		"two policies of one type, got <nil> and <nil>":      {},
		"two policies of one type, got *limiter.places and ": {p, shadow.New(p)},
		"must not be the same one":                           {p, p},
	} {
		_, err := rules.NewStage(pair[0], pair[1])
		require.ErrorContains(t, err, want)
	}
	stage, err := rules.NewStage(p, q)
	require.NoError(t, err)
	_, err = rules.New(map[string]rules.Target{"p": rules.Of(stage)})
	require.EqualError(t, err, "rules: target p: both policies of a Stage must have the same options")
	_, err = rules.New(map[string]rules.Target{"p": rules.Of((*rules.Stage)(nil))})
	require.EqualError(t, err, "rules: target p: the policy must be set, got nil")
}

// New numbers decide about a tenth of the requests before they decide about all.
func ExampleStage() {
	limit := func() spillway.Policy { return spillway.Must(limiter.New(limiter.Concurrency{Limit: 50})) }
	stage := spillway.Must(rules.NewStage(limit(), limit()))
	gate := spillway.New(stage)
	set := spillway.Must(rules.New(map[string]rules.Target{"api": rules.Of(stage)}))

	_ = set.Apply([]byte(`{"rules": {}, "stage": {"enforce": 0.1, "rules": {"api": {"Limit": 1}}}}`))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 1000 {
		first, _ := gate.Enter(context.Background(), spillway.Request{Arrived: now.Add(time.Duration(2*i) * time.Second)})
		second, _ := gate.Enter(context.Background(), spillway.Request{Arrived: now.Add(time.Duration(2*i+1) * time.Second)})
		second.Done(spillway.Success)
		first.Done(spillway.Success)
	}
	for i, name := range []string{"in force", "new"} {
		s := stage.Stats()[i]
		fmt.Printf("%s: would refuse %d, refused %d, wrong about %d\n", name, s.WouldRefuse, s.Enforced, s.RegretRefused)
	}
	// Output:
	// in force: would refuse 0, refused 0, wrong about 0
	// new: would refuse 1000, refused 102, wrong about 898
}
