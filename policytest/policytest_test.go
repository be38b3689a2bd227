package policytest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/shadow"
)

// right lists policies that keep the contract, with what the suite cannot check of them.
var right = []struct {
	name      string
	newPolicy func() spillway.Policy
	o         *Options
	skipped   []string
}{
	{name: "slots", newPolicy: func() spillway.Policy { return &slots{limit: 10} }},
	{name: "one slot", newPolicy: func() spillway.Policy { return &slots{limit: 1} }},
	{name: "telling slots", newPolicy: func() spillway.Policy { return &tellingSlots{slots{limit: 10}} }},
	{name: "bucket", newPolicy: func() spillway.Policy { return newBucket() }},
	{name: "breaker", newPolicy: func() spillway.Policy { return &breaker{} }},
	{name: "keyed", newPolicy: func() spillway.Policy { return &keyed{byKey: map[string]*slots{}} }},
	{name: "beating", newPolicy: func() spillway.Policy { return newBeating() }},
	{name: "queue", newPolicy: func() spillway.Policy { return &queue{free: 4, room: 6} }},
	{name: "queue without room", newPolicy: func() spillway.Policy { return &queue{free: 4} }, skipped: []string{"queue"}},
	{name: "adaptive", newPolicy: func() spillway.Policy { return &adaptive{tellingSlots{slots{limit: 10}}} }, o: &Options{Learns: true}},
	{
		name:      "throttle",
		newPolicy: func() spillway.Policy { return &throttle{rng: rand.New(rand.NewPCG(1, 2))} },
		o:         &Options{CountsRefusals: true, Slack: 0.1},
		skipped:   []string{"refusal-changes-nothing"},
	},
	{
		name:      "open",
		newPolicy: func() spillway.Policy { return open{} },
		skipped:   []string{"rejection", "gives-back", "refusal-changes-nothing"},
	},
	{
		name:      "shadowed bucket that never refuses",
		newPolicy: func() spillway.Policy { return shadow.New(open{}) },
		skipped:   []string{"rejection", "gives-back", "refusal-changes-nothing"},
	},
	{
		name:      "requests of one's own",
		newPolicy: func() spillway.Policy { return &slots{limit: 10} },
		o: &Options{
			Request: func(int) spillway.Request { return spillway.Request{Key: "mine", Cost: 2} },
			Burst:   100,
		},
	},
}

func TestRightPoliciesPass(t *testing.T) {
	for _, tc := range right {
		t.Run(tc.name, func(t *testing.T) {
			r := record(t, tc.newPolicy, tc.o)
			require.Empty(t, r.failed)
			want := tc.skipped
			if race.Enabled {
				want = append(slices.Clip(want), "no-allocation")
			}
			var got []string
			for name := range r.skipped {
				got = append(got, name)
			}
			require.ElementsMatch(t, want, got)
			require.Len(t, *r.ran, 12)
		})
	}
}

func TestRun(t *testing.T) {
	Run(t, func() spillway.Policy { return &tellingSlots{slots{limit: 10}} }, nil)
}

func TestRunTakesOptions(t *testing.T) {
	Run(t, func() spillway.Policy { return &queue{free: 2, room: 5} }, &Options{
		InFlight: func(p spillway.Policy) int64 {
			q := p.(*queue)
			q.mu.Lock()
			defer q.mu.Unlock()
			return int64(2 - q.free)
		},
	})
}

func TestOptionsOutOfRange(t *testing.T) {
	newPolicy := func() spillway.Policy { return open{} }
	for want, o := range map[string]*Options{
		"policytest: Options: Burst must be at least 1, got -1":    {Burst: -1},
		"policytest: Options: Idle must not be negative, got -1ns": {Idle: -1},
		"policytest: Options: Slack must be in 0..1, got 1.5":      {Slack: 1.5},
		"policytest: Options: Slack must be in 0..1, got NaN":      {Slack: math.NaN()},
		"policytest: Options: Slack must be in 0..1, got -0.5":     {Slack: -0.5},
		"policytest: Options: Slack must be in 0..1, got +Inf":     {Slack: math.Inf(1)},
	} {
		r := record(t, newPolicy, o)
		require.Equal(t, want, r.failed[""])
		require.Empty(t, *r.ran)
	}
	require.Equal(t, "policytest: newPolicy is nil", record(t, nil, nil).failed[""])
}

func TestFailureTellsWhyItMatters(t *testing.T) {
	for _, queues := range []bool{false, true} {
		for _, tc := range cases(queues) {
			require.NotEmpty(t, tc.why, tc.name)
		}
	}
	r := record(t, func() spillway.Policy { return nil }, nil)
	require.Contains(t, r.failed["new-policy"], "newPolicy returned nil\nwhy it matters: the other cases compare")
	require.Contains(t, r.failed[""], "the other cases are not run")
	require.Equal(t, []string{"new-policy"}, *r.ran)
}
