package adaptive_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
)

// invalid lists options that neither New nor Tune takes, by the error.
var invalid = map[string]adaptive.Options{
	"adaptive: Min must be at least 1, got -1":                               {Min: -1},
	"adaptive: Max must be at least Min, which is 5, got 4":                  {Min: 5, Max: 4},
	"adaptive: Max must be at least Min, which is 1, got -3":                 {Max: -3},
	"adaptive: MaxRise must be above 1 and finite, or Off, got 1":            {MaxRise: 1},
	"adaptive: MaxRise must be above 1 and finite, or Off, got NaN":          {MaxRise: math.NaN()},
	"adaptive: MaxRise must be above 1 and finite, or Off, got +Inf":         {MaxRise: math.Inf(1)},
	"adaptive: MaxBaseline must not be negative, got -1ns":                   {MaxBaseline: -1},
	"adaptive: Gradient2: Tolerance must be at least 1 and finite, got 0.5":  {Estimator: &adaptive.Gradient2{Tolerance: .5}},
	"adaptive: Gradient2: Tolerance must be at least 1 and finite, got NaN":  {Estimator: &adaptive.Gradient2{Tolerance: math.NaN()}},
	"adaptive: Gradient2: Tolerance must be at least 1 and finite, got +Inf": {Estimator: &adaptive.Gradient2{Tolerance: math.Inf(1)}},
	"adaptive: AIMD: Timeout must not be negative, got -1ns":                 {Estimator: &adaptive.AIMD{Timeout: -1}},
	"adaptive: Estimator must not be a nil *adaptive.Vegas":                  {Estimator: (*adaptive.Vegas)(nil)},
	"adaptive: Estimator must not be a nil *adaptive.Gradient2":              {Estimator: (*adaptive.Gradient2)(nil)},
	"adaptive: Estimator must not be a nil *adaptive_test.estimator":         {Estimator: (*estimator)(nil)},
}

func TestInvalidOptions(t *testing.T) {
	tuned := spillway.Must(adaptive.New(nil))
	before := tuned.Options()
	for want, o := range invalid {
		_, err := adaptive.New(&o)
		require.EqualError(t, err, want)
		require.EqualError(t, tuned.Tune(o), want)
		require.Equal(t, before, tuned.Options(), "an error changes nothing")
	}
	for want, o := range map[string]adaptive.Options{
		"adaptive: Initial must be from Min to Max, which are 2 and 4, got 5":     {Min: 2, Max: 4, Initial: 5},
		"adaptive: Initial must be from Min to Max, which are 1 and 1000, got -1": {Initial: -1},
	} {
		_, err := adaptive.New(&o)
		require.EqualError(t, err, want)
	}
}

func TestDefaults(t *testing.T) {
	l := spillway.Must(adaptive.New(nil))
	require.Equal(t, adaptive.Options{
		Name:      "adaptive",
		Estimator: &adaptive.Gradient2{}, Initial: 20, Min: 1, Max: 1000,
		MaxRise: 2,
	}, l.Options())
	require.EqualValues(t, 20, l.Stats().Limit)
	require.EqualValues(t, 7, spillway.Must(adaptive.New(&adaptive.Options{Max: 7})).Stats().Limit)
	require.EqualValues(t, 30, spillway.Must(adaptive.New(&adaptive.Options{Min: 30})).Stats().Limit)
}

func TestTune(t *testing.T) {
	l := spillway.Must(adaptive.New(&adaptive.Options{Initial: 50, MaxRise: 3, MaxBaseline: time.Second}))
	require.NoError(t, l.Tune(adaptive.Options{Max: 10}), "it takes complete Options")
	require.EqualValues(t, 10, l.Stats().Limit, "a new bound holds at once")
	o := l.Options()
	require.Equal(t, adaptive.Options{
		Name:      "adaptive",
		Estimator: &adaptive.Gradient2{}, Initial: 50, Min: 1, Max: 10, MaxRise: 2,
	}, o, "a zero field means its default")
	require.NoError(t, l.Tune(o))
	require.Equal(t, o, l.Options())
	require.EqualError(t, l.Tune(adaptive.Options{Initial: 20}), "adaptive: Tune: Initial cannot change from 50, got 20")
	require.NoError(t, l.Tune(adaptive.Options{Min: 60}))
	require.EqualValues(t, 60, l.Stats().Limit)
	require.NoError(t, l.Tune(adaptive.Options{MaxBaseline: time.Second}))
	require.Equal(t, time.Second, l.Stats().Ceiling, "a ceiling holds at once")
}

// learn has l see one success.
func learn(t *testing.T, l *adaptive.Limit, latency time.Duration) {
	t.Helper()
	r := spillway.Request{Arrived: time.Unix(0, 0)}
	ticket, err := l.Admit(context.Background(), r)
	require.NoError(t, err)
	l.Done(r, ticket, spillway.Result{Outcome: spillway.Success, Latency: latency})
}

// Tune with the Estimator in force, or without one where the default is in force, keeps what it learned.
func TestTuneKeepsOrReplacesTheEstimator(t *testing.T) {
	l := spillway.Must(adaptive.New(nil))
	learn(t, l, time.Second)
	require.Equal(t, time.Second, l.Stats().Baseline)
	require.NoError(t, l.Tune(adaptive.Options{Max: 10}))
	require.Equal(t, time.Second, l.Stats().Baseline, "the default stays")
	require.NoError(t, l.Tune(l.Options()))
	require.NoError(t, l.Tune(adaptive.Options{}))
	require.Equal(t, time.Second, l.Stats().Baseline, "and still is the default")

	vegas := &adaptive.Vegas{}
	require.NoError(t, l.Tune(adaptive.Options{Estimator: vegas}))
	require.Zero(t, l.Stats().Baseline)
	learn(t, l, 2*time.Second)
	require.NoError(t, l.Tune(l.Options()))
	require.Equal(t, 2*time.Second, l.Stats().Baseline)
	require.Same(t, vegas, l.Options().Estimator)

	require.NoError(t, l.Tune(adaptive.Options{}))
	require.Equal(t, &adaptive.Gradient2{}, l.Options().Estimator, "no Estimator means the default")
	require.NoError(t, l.Tune(adaptive.Options{Estimator: valued{}}))
	require.NoError(t, l.Tune(l.Options()), "an Estimator that cannot be compared")
}

// valued is an Estimator that is no pointer and cannot be compared.
type valued struct{ _ []int }

func (valued) Step(limit float64, _ adaptive.Sample) float64 { return limit }
