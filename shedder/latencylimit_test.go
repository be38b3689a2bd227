package shedder_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/policytest"
	"github.com/spillway-go/spillway/shedder"
)

// estimator is an Estimator that returns what it is told and keeps what it was shown.
type estimator struct {
	next float64
	seen []shedder.Sample
}

func (e *estimator) Step(_ float64, s shedder.Sample) float64 {
	e.seen = append(e.seen, s)
	return e.next
}

func TestLatencyLimitFollowsItsEstimator(t *testing.T) {
	e := &estimator{next: 1.9}
	l := spillway.Must(shedder.NewLatencyLimit(&shedder.LatencyLimitOptions{Estimator: e, Initial: 2, Max: 9}))
	ctx, r := context.Background(), spillway.Request{}
	first, err := l.Admit(ctx, r)
	require.NoError(t, err)
	second, err := l.Admit(ctx, r)
	require.NoError(t, err)
	_, err = l.Admit(ctx, r)
	require.ErrorIs(t, err, spillway.ErrRejected)

	l.Done(r, first, spillway.Result{Outcome: spillway.Ignored, Latency: time.Second})
	l.Done(r, second, spillway.Result{Outcome: spillway.Dropped, Latency: time.Second})
	require.Equal(t, []shedder.Sample{{Latency: time.Second, InFlight: 2, Dropped: true}}, e.seen)
	require.Equal(t, shedder.LatencyLimitStats{Limit: 1, Refused: 1}, l.Stats())

	for next, want := range map[float64]int64{100: 9, -5: 1, 4.99: 4, math.Inf(1): 9} {
		e.next = next
		ticket, err := l.Admit(ctx, r)
		require.NoError(t, err)
		l.Done(r, ticket, spillway.Result{Outcome: spillway.Success})
		require.Equal(t, want, l.Stats().Limit, "after %v", next)
		e.next = math.NaN()
		ticket, err = l.Admit(ctx, r)
		require.NoError(t, err)
		l.Done(r, ticket, spillway.Result{Outcome: spillway.Success})
		require.Equal(t, want, l.Stats().Limit, "what is not a number changes nothing")
	}
}

func TestLatencyLimitKeepsTheContract(t *testing.T) {
	policytest.Run(t, func() spillway.Policy {
		return spillway.Must(shedder.NewLatencyLimit(&shedder.LatencyLimitOptions{Estimator: &estimator{next: 3}, Initial: 3}))
	})
}

func TestLatencyLimitOptionsThatCannotBe(t *testing.T) {
	for want, o := range map[string]shedder.LatencyLimitOptions{
		"shedder: LatencyLimit: Min must be at least 1, got -1":                            {Min: -1},
		"shedder: LatencyLimit: Max must be at least Min, which is 5, got 4":               {Min: 5, Max: 4},
		"shedder: LatencyLimit: Initial must be from Min to Max, which are 2 and 4, got 5": {Min: 2, Max: 4, Initial: 5},
		"shedder: Gradient2: Tolerance must be at least 1, got 0.5":                        {Estimator: &shedder.Gradient2{Tolerance: .5}},
		"shedder: Gradient2: Tolerance must be at least 1, got NaN":                        {Estimator: &shedder.Gradient2{Tolerance: math.NaN()}},
		"shedder: AIMD: Timeout must not be negative, got -1ns":                            {Estimator: &shedder.AIMD{Timeout: -1}},
	} {
		_, err := shedder.NewLatencyLimit(&o)
		require.EqualError(t, err, want)
	}
	require.EqualValues(t, 20, spillway.Must(shedder.NewLatencyLimit(nil)).Stats().Limit)
	require.EqualValues(t, 7, spillway.Must(shedder.NewLatencyLimit(&shedder.LatencyLimitOptions{Max: 7})).Stats().Limit)
}

// Eight goroutines on each of the estimators: the limit stays in its bounds and nothing stays inside.
func TestLatencyLimitUnderConcurrency(t *testing.T) {
	for _, e := range []shedder.Estimator{nil, &shedder.Vegas{}, &shedder.AIMD{Timeout: time.Millisecond}} {
		t.Run(fmt.Sprintf("%T", e), func(t *testing.T) {
			l := spillway.Must(shedder.NewLatencyLimit(&shedder.LatencyLimitOptions{Estimator: e, Initial: 4, Min: 2, Max: 6}))
			gate := spillway.New(l)
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for j := range 5000 {
						p, err := gate.Enter(context.Background(), spillway.Request{})
						if err != nil {
							continue
						}
						p.DoneAt(p.Arrived().Add(time.Duration(i*j%7)*time.Millisecond), spillway.Outcome(j%4))
					}
				})
			}
			all.Wait()
			s := l.Stats()
			require.Zero(t, s.InFlight)
			require.GreaterOrEqual(t, s.Limit, int64(2))
			require.LessOrEqual(t, s.Limit, int64(6))
			require.Equal(t, s.Refused, gate.Stats().Rejected)
		})
	}
}

func TestLatencyLimitAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations are not counted under the race detector: it adds its own")
	}
	gate := spillway.New(spillway.Must(shedder.NewLatencyLimit(&shedder.LatencyLimitOptions{Initial: 1, Max: 1})))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		p, _ := gate.Enter(context.Background(), spillway.Request{})
		_, _ = gate.Enter(context.Background(), spillway.Request{}) // refused
		p.Done(spillway.Success)
	}))
}

// A limiter that needs no CPU sensor.
func ExampleNewLatencyLimit() {
	limit, err := shedder.NewLatencyLimit(&shedder.LatencyLimitOptions{Estimator: &shedder.Vegas{}, Max: 200})
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := spillway.New(limit)
	permit, err := gate.Enter(context.Background(), spillway.Request{})
	if err != nil {
		return // as many inside as the limit
	}
	defer permit.Done(spillway.Failure)
	fmt.Println("limit", limit.Stats().Limit, "in flight", limit.Stats().InFlight)
	permit.Done(spillway.Success)
	// Output: limit 20 in flight 1
}
