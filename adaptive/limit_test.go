package adaptive_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/policytest"
)

// estimator is an Estimator that returns a given limit and keeps the samples.
type estimator struct {
	next float64
	seen []adaptive.Sample
}

func (e *estimator) Step(_ float64, s adaptive.Sample) float64 {
	e.seen = append(e.seen, s)
	return e.next
}

// admit admits one request.
func admit(t testing.TB, l *adaptive.Limit) spillway.Ticket {
	t.Helper()
	ticket, err := l.Admit(context.Background(), spillway.Request{})
	require.NoError(t, err)
	return ticket
}

func TestLimitFollowsItsEstimator(t *testing.T) {
	e := &estimator{next: 1.9}
	l := spillway.Must(adaptive.New(&adaptive.Options{Estimator: e, Initial: 2, Max: 9}))
	r := spillway.Request{}
	first, second := admit(t, l), admit(t, l)
	_, err := l.Admit(context.Background(), r)
	require.ErrorIs(t, err, spillway.ErrRejected)
	var rejection *spillway.Rejection
	require.ErrorAs(t, err, &rejection)
	require.Equal(t, spillway.Rejection{Policy: "adaptive", Reason: "limit reached"}, *rejection)

	l.Done(r, first, spillway.Result{Outcome: spillway.Ignored, Latency: time.Second})
	l.Done(r, second, spillway.Result{Outcome: spillway.Dropped, Latency: time.Second})
	require.Equal(t, []adaptive.Sample{{Latency: time.Second, InFlight: 2, Dropped: true}}, e.seen)
	require.Equal(t, adaptive.Stats{
		Name: "adaptive", Limit: 1, Admitted: 2, Refused: 1,
		ByReason: []spillway.Refusal{{Policy: "adaptive", Reason: "limit reached", Count: 1}},
	}, l.Stats())

	for next, want := range map[float64]int64{100: 9, -5: 1, 4.99: 4, math.Inf(1): 9} {
		e.next = next
		l.Done(r, admit(t, l), spillway.Result{Outcome: spillway.Success})
		require.Equal(t, want, l.Stats().Limit, "after %v", next)
		e.next = math.NaN()
		l.Done(r, admit(t, l), spillway.Result{Outcome: spillway.Success})
		require.Equal(t, want, l.Stats().Limit, "NaN changes nothing")
	}
}

// The bounds meet, because the suite compares a policy with a new one after hundreds of requests.
func TestConformance(t *testing.T) {
	for name, e := range map[string]func() adaptive.Estimator{
		"own":       func() adaptive.Estimator { return &estimator{next: 3} },
		"gradient2": func() adaptive.Estimator { return &adaptive.Gradient2{} },
		"vegas":     func() adaptive.Estimator { return &adaptive.Vegas{} },
		"aimd":      func() adaptive.Estimator { return &adaptive.AIMD{Timeout: time.Millisecond} },
	} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, func() spillway.Policy {
				return spillway.Must(adaptive.New(&adaptive.Options{Estimator: e(), Min: 3, Max: 3}))
			}, nil)
		})
	}
}

func TestZeroLimitRefuses(t *testing.T) {
	var l adaptive.Limit
	_, err := l.Admit(context.Background(), spillway.Request{})
	require.ErrorIs(t, err, spillway.ErrRejected)
	require.NoError(t, l.Tune(adaptive.Options{}))
	_, err = l.Admit(context.Background(), spillway.Request{})
	require.ErrorIs(t, err, spillway.ErrRejected)
	require.EqualValues(t, 2, l.Stats().Refused)
}

// The limit holds on each of the estimators while eight goroutines enter, the options change, and stats are read.
func TestUnderConcurrency(t *testing.T) {
	for _, e := range []adaptive.Estimator{nil, &adaptive.Vegas{}, &adaptive.AIMD{Timeout: time.Millisecond}} {
		t.Run(fmt.Sprintf("%T", e), func(t *testing.T) {
			l := spillway.Must(adaptive.New(&adaptive.Options{Estimator: e, Initial: 4, Min: 2, Max: 6}))
			gate := spillway.New(l)
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for j := range 5000 {
						p, err := gate.Enter(context.Background(), spillway.Request{})
						if err != nil {
							continue
						}
						p.DoneAt(p.Arrived().Add(time.Duration(i*j%7)*time.Millisecond), spillway.Outcome(j%4), 0)
					}
				})
			}
			all.Go(func() {
				for i := range 1000 {
					o := l.Options()
					o.Max = 5 + i%2
					if l.Tune(o) != nil || l.Stats().Limit > 6 {
						panic("Tune")
					}
				}
			})
			all.Wait()
			s := l.Stats()
			require.Zero(t, s.InFlight)
			require.GreaterOrEqual(t, s.Limit, int64(2))
			require.LessOrEqual(t, s.Limit, int64(6))
			require.Equal(t, s.Refused, gate.Stats().Refused)
		})
	}
}

func TestAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not counted under the race detector: it adds its own")
	}
	for _, e := range []adaptive.Estimator{&adaptive.Gradient2{}, &adaptive.Vegas{}, &adaptive.AIMD{}} {
		gate := spillway.New(spillway.Must(adaptive.New(&adaptive.Options{Estimator: e, Initial: 1, Max: 1})))
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			p, _ := gate.Enter(context.Background(), spillway.Request{})
			_, _ = gate.Enter(context.Background(), spillway.Request{}) // refused
			p.Done(spillway.Success)
		}), "%T", e)
	}
}

// Whatever the order of arrivals and ends, and whatever is tuned meanwhile, the count is exact and the limit holds.
func FuzzRandomOrders(f *testing.F) {
	f.Add(uint64(1), uint16(200))
	f.Add(uint64(7), uint16(3000))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		rng := rand.New(rand.NewPCG(seed, 0))
		estimators := []adaptive.Estimator{&adaptive.Gradient2{}, &adaptive.Vegas{Seed: seed}, &adaptive.AIMD{}}
		l := spillway.Must(adaptive.New(&adaptive.Options{Estimator: estimators[rng.IntN(3)], Max: 50}))
		now := time.Unix(0, 0)
		type job struct {
			r spillway.Request
			t spillway.Ticket
		}
		var jobs []job
		end := func(i int) {
			j := jobs[i]
			jobs = append(jobs[:i], jobs[i+1:]...)
			l.Done(j.r, j.t, spillway.Result{Outcome: spillway.Outcome(rng.IntN(5)), Latency: now.Sub(j.r.Arrived)})
		}
		for range steps {
			now = now.Add(time.Duration(rng.Int64N(int64(2*time.Second))) - 100*time.Millisecond)
			before := l.Stats()
			r := spillway.Request{Arrived: now}
			if ticket, err := l.Admit(context.Background(), r); err == nil {
				require.Less(t, before.InFlight, before.Limit)
				jobs = append(jobs, job{r, ticket})
			} else {
				require.GreaterOrEqual(t, before.InFlight, before.Limit)
			}
			for len(jobs) > 0 && rng.IntN(3) > 0 {
				end(rng.IntN(len(jobs)))
			}
			if rng.IntN(100) == 0 {
				require.NoError(t, l.Tune(adaptive.Options{Min: 1 + rng.IntN(3), Max: 3 + rng.IntN(50), Estimator: estimators[rng.IntN(3)]}))
			}
			s, o := l.Stats(), l.Options()
			require.Equal(t, int64(len(jobs)), s.InFlight)
			require.GreaterOrEqual(t, s.Limit, int64(o.Min))
			require.LessOrEqual(t, s.Limit, int64(o.Max))
			if s.Ceiling > 0 {
				require.GreaterOrEqual(t, s.Ceiling, time.Duration(1))
			}
		}
		for len(jobs) > 0 {
			end(0)
		}
		require.Zero(t, l.Stats().InFlight)
	})
}
