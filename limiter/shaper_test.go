package limiter

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/roundup"
)

func newShaper(t testing.TB, o Shaper) *shaper {
	t.Helper()
	s, err := New(o)
	require.NoError(t, err)
	return s.(*shaper)
}

// A payer acquires as the tests of Guava do, and notes how long each took.
type payer struct {
	t   *testing.T
	s   *shaper
	now time.Duration
}

func (p *payer) acquire(ns ...int) (waits []float64) {
	p.t.Helper()
	for _, n := range ns {
		r, err := p.s.ReserveAt(after(p.now), n, never)
		require.NoError(p.t, err)
		p.now += r.Delay()
		waits = append(waits, math.Round(r.Delay().Seconds()*1000)/1000)
	}
	return waits
}

// The figures of Guava's SmoothBursty, and of uber/ratelimit.
func TestShaperPaces(t *testing.T) {
	options := func(n, slack int) Shaper {
		return Shaper{Rate: Per(n, time.Second), Slack: slack, MaxWait: time.Hour, MaxCost: 100}
	}
	t.Run("evenly", func(t *testing.T) {
		p := &payer{t: t, s: newShaper(t, options(5, 0))}
		require.Equal(t, []float64{0, .2, .2}, p.acquire(1, 1, 1))
	})
	t.Run("a request pays for the one before", func(t *testing.T) {
		p := &payer{t: t, s: newShaper(t, options(1, 0))}
		require.Equal(t, []float64{0, 1, 1, 2, 4, 8}, p.acquire(1, 1, 2, 4, 8, 1))
	})
	t.Run("a pause saves slack", func(t *testing.T) {
		p := &payer{t: t, s: newShaper(t, options(5, 5))}
		require.Equal(t, []float64{0, 0, 0, 0, .2}, p.acquire(1, 1, 3, 1, 1))
		p.now += 200*time.Millisecond + 2*time.Second
		require.Equal(t, []float64{0, 0, 0, 0, .2}, p.acquire(1, 1, 3, 1, 1))
	})
	t.Run("and not more of it", func(t *testing.T) {
		p := &payer{t: t, s: newShaper(t, options(5, 0))}
		p.acquire(1)
		p.now += 30 * time.Second
		require.Equal(t, []float64{0, .2}, p.acquire(1, 1))
	})
	t.Run("the rate is set", func(t *testing.T) {
		p := &payer{t: t, s: newShaper(t, options(1, 0))}
		require.Equal(t, []float64{0, 1}, p.acquire(1, 1))
		require.NoError(t, setRate(p.s, after(p.now), Per(2, time.Second)))
		require.Equal(t, []float64{1, .5, 1, 1}, p.acquire(1, 2, 2, 1), "old debt at the old rate")
	})
	t.Run("slack stays as many tokens when the rate is set", func(t *testing.T) {
		p := &payer{t: t, s: newShaper(t, options(1, 4))}
		require.Equal(t, []float64{0, 0}, p.acquire(1, 1))
		require.NoError(t, setRate(p.s, after(p.now), Per(10, time.Second)))
		require.Equal(t, []float64{0, 0, 0, .1}, p.acquire(1, 1, 1, 1))
	})
	t.Run("7 per minute", func(t *testing.T) {
		p := &payer{t: t, s: newShaper(t, Shaper{Rate: Per(7, time.Minute), MaxWait: time.Hour})}
		var at []time.Duration
		for range 15 {
			p.acquire(1)
			at = append(at, p.now.Truncate(time.Second))
		}
		require.Equal(t, []time.Duration{0, time.Minute, 2 * time.Minute}, []time.Duration{at[0], at[7], at[14]})
	})
	t.Run("300 million per second", func(t *testing.T) {
		s := newShaper(t, Shaper{Rate: Per(3e8, time.Second), Slack: 1, MaxWait: time.Hour, MaxQueue: 1e6})
		var last Reservation
		for range 300_000 {
			r, err := s.ReserveAt(after(0), 1, never)
			if err != nil {
				t.Fatal(err)
			}
			last = r
		}
		require.InDelta(t, time.Millisecond, last.Delay(), 10)
	})
}

func TestShaperRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaper(t, Shaper{Rate: Per(10, time.Second), MaxWait: 250 * time.Millisecond, MaxQueue: 3, Name: "pace"})
		begin := time.Now()
		require.True(t, s.Allow())
		require.False(t, s.Allow())
		require.Equal(t, &spillway.Rejection{Policy: "pace", Reason: "rate exceeded", RetryAfter: 52 * roundup.Tick, OverQuota: true}, s.AllowAt(begin, 1))
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { require.NoError(t, s.Wait(t.Context(), 1)) })
		}
		synctest.Wait()
		require.Equal(t, int64(2), s.Stats().Waiting)
		reason := func(err error) string {
			var rej *spillway.Rejection
			require.ErrorAs(t, err, &rej)
			return rej.Reason
		}
		require.Equal(t, "wait too long", reason(s.Wait(t.Context(), 1)), "300 ms")
		all.Wait()
		require.Equal(t, 200*time.Millisecond, time.Since(begin))

		ctx, cancel := context.WithTimeout(t.Context(), 99*time.Millisecond)
		defer cancel()
		require.Equal(t, "deadline too near", reason(s.Wait(ctx, 1)))
		_, err := s.Admit(ctx, spillway.Request{Arrived: time.Now()})
		require.Equal(t, "deadline too near", reason(err))

		q := newShaper(t, Shaper{Rate: Per(10, time.Second), MaxQueue: 2})
		for range 3 {
			_, err := q.ReserveAt(begin, 1, never)
			require.NoError(t, err)
		}
		_, err = q.ReserveAt(begin, 1, never)
		require.Equal(t, "queue full", reason(err))
		_, err = q.ReserveAt(begin, 1, -5)
		require.Equal(t, "wait too long", reason(err))
		require.Equal(t, 200*time.Millisecond, time.Since(begin), "nobody waited to be refused")

		var cost *CostError
		for _, n := range []int{11, -1, math.MaxInt} {
			require.ErrorAs(t, s.Wait(t.Context(), n), &cost)
			require.ErrorAs(t, s.AllowAt(begin, n), &cost)
			_, err := s.ReserveAt(begin, n, never)
			require.ErrorAs(t, err, &cost)
			_, err = s.Admit(t.Context(), spillway.Request{Arrived: begin, Cost: n})
			require.Same(t, cost.Unwrap(), err)
		}
		require.Equal(t, 10, cost.Max)
		require.Equal(t, int64(12), s.Stats().Impossible)
		require.Equal(t, Stats{Name: "shaper", Admitted: 3, Refused: 2, Waiting: 2, ByReason: []spillway.Refusal{
			{Policy: "shaper", Reason: "wait too long", Count: 1}, {Policy: "shaper", Reason: "queue full", Count: 1},
		}}, q.Stats())
	})
}

// Everybody passes in order and in time, also behind those who give up.
func TestShaperMovesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaper(t, Shaper{Rate: Per(10, time.Second)})
		begin := time.Now()
		var mu sync.Mutex
		at := map[int]time.Duration{}
		cancels := make([]context.CancelFunc, 8)
		var all sync.WaitGroup
		for i := range cancels {
			var ctx context.Context
			ctx, cancels[i] = context.WithCancel(t.Context())
			all.Go(func() {
				_, err := s.Admit(ctx, spillway.Request{Arrived: time.Now()})
				mu.Lock()
				defer mu.Unlock()
				if at[i] = time.Since(begin); err != nil {
					require.ErrorIs(t, err, context.Canceled)
					at[i] = -at[i]
				}
			})
			synctest.Wait()
		}
		time.Sleep(150 * time.Millisecond)
		cancels[2]() // the next
		cancels[5]() // one in the middle
		all.Wait()
		ms := time.Millisecond
		require.Equal(t, map[int]time.Duration{
			0: 0, 1: 100 * ms, 2: -150 * ms, 3: 200 * ms, 4: 300 * ms, 5: -150 * ms, 6: 400 * ms, 7: 500 * ms,
		}, at)
		require.Equal(t, Stats{Name: "shaper", Admitted: 6, Cancelled: 2}, countsOf(s))
	})
}

func TestShaperGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaper(t, Shaper{Rate: Per(10, time.Second)})
		begin := time.Now()
		r := spillway.Request{Arrived: begin, Cost: 5}
		ticket, err := s.Admit(t.Context(), r)
		require.NoError(t, err)
		done := make(chan time.Duration, 1)
		go func() {
			assert.NoError(t, s.Wait(t.Context(), 1))
			done <- time.Since(begin)
		}()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		s.Done(r, ticket, spillway.Result{Outcome: spillway.Success})
		synctest.Wait()
		require.Empty(t, done)
		s.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
		require.Equal(t, 100*time.Millisecond, <-done, "who waits moves up at once")

		// A reservation in the queue that is cancelled lets those behind it move up; one whose time has come gives back.
		held, err := s.ReserveAt(time.Now(), 5, time.Second)
		require.NoError(t, err)
		require.Equal(t, 100*time.Millisecond, held.Delay())
		go func() {
			assert.NoError(t, s.Wait(t.Context(), 1))
			done <- time.Since(begin)
		}()
		synctest.Wait()
		held.CancelAt(time.Now())
		require.Equal(t, 200*time.Millisecond, <-done)
		held, err = s.ReserveAt(time.Now(), 5, time.Second)
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		held.CancelAt(time.Now())
		extra, err := s.ReserveAt(time.Now(), 1, 0)
		require.NoError(t, err)
		extra.RefundAt(time.Now(), 1)
		require.True(t, s.Allow())
		held, err = s.ReserveAt(time.Now(), 1, time.Second)
		require.NoError(t, err)
		held.CancelAt(time.Now())
		require.Equal(t, State{Limit: 10, NextIn: 100 * time.Millisecond, FullIn: 100 * time.Millisecond}, s.PeekAt(readClock()))
		require.False(t, s.Idle(time.Now()))
		time.Sleep(100 * time.Millisecond)
		require.True(t, s.Idle(time.Now()))
		require.Equal(t, State{Limit: 10, Remaining: 10}, s.PeekAt(readClock()))
	})
}

func TestShaperRateIsSetForThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaper(t, Shaper{Rate: Per(1, time.Second), MaxWait: time.Minute})
		begin := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				require.NoError(t, s.Wait(t.Context(), 1))
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(begin))
			})
			synctest.Wait()
		}
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, setRate(s, time.Now(), Per(10, time.Second)))
		all.Wait()
		ms := time.Millisecond
		require.Equal(t, []time.Duration{0, 1000 * ms, 1100 * ms, 1200 * ms}, at)
		require.ErrorContains(t, s.Tune(Shaper{}), "limiter: Shaper: Rate.Per")
	})
}

// 5000 per second is a spacing of 200 µs: nobody passes early, and the pace is kept however late timers are.
func TestShaperSpacesAtHighRates(t *testing.T) {
	s := newShaper(t, Shaper{Rate: Per(5000, time.Second), MaxQueue: 1000})
	begin := time.Now()
	var mu sync.Mutex
	var at []time.Duration
	var all sync.WaitGroup
	const n = 500
	for range n {
		all.Go(func() {
			err := s.Wait(t.Context(), 1)
			now := time.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			require.NoError(t, err)
			at = append(at, now)
		})
	}
	all.Wait()
	slices.Sort(at)
	for i, got := range at {
		require.GreaterOrEqual(t, got, time.Duration(i)*200*time.Microsecond, "number %d", i)
	}
	require.Less(t, at[n-1], 3*n*200*time.Microsecond, "the pace is kept")
}

func TestShaperOptions(t *testing.T) {
	second := Per(1, time.Second)
	for want, o := range map[string]Shaper{
		"Rate.Per must be positive, got 0s":              {},
		"Rate.Tokens must be at least 1, got 0":          {Rate: Per(0, 1)},
		"Slack must be in 0..":                           {Rate: second, Slack: -1},
		"MaxWait must be in 0..":                         {Rate: second, MaxWait: -1},
		"MaxQueue must not be negative, got -1":          {Rate: second, MaxQueue: -1},
		"MaxCost must be at least 1, got -1":             {Rate: second, MaxCost: -1},
		"Name must be printable ASCII":                   {Rate: second, Name: "é"},
		fmt.Sprintf("MaxCost of %d tokens", math.MaxInt): {Rate: Per(1, time.Duration(math.MaxInt64)), MaxCost: math.MaxInt},
	} {
		s, err := New(o)
		require.Nil(t, s)
		require.ErrorContains(t, err, "limiter: Shaper: "+want)
	}
}

// A spaceModel grants by scanning time: at each instant it asks whether the bucket has leaked enough for the next.
type spaceModel struct {
	interval, slack int64 // ns per token, and of slack
	level           int64 // ns to go until the bucket is empty
	queue           []*modelSpot
}

type modelSpot struct {
	sp      *spot
	n       int64
	granted bool
}

// advance lets one ns pass, after granting what may pass now.
func (m *spaceModel) grant() {
	for len(m.queue) > 0 && m.level <= m.slack {
		m.queue[0].granted = true
		m.level += m.queue[0].n * m.interval
		m.queue = m.queue[1:]
	}
}

func TestSpacerAgainstModel(t *testing.T) {
	seeds(t, 40, func(t *testing.T, rng *rand.Rand) {
		interval := 1 + rng.Int64N(20)
		slack := rng.Int64N(4)
		g, err := newGCRA("", Per(1, time.Duration(interval)), 5, "")
		require.NoError(t, err)
		s := &spacer{gcra: g, slack: slack * g.b, maxQueue: 6}
		m := &spaceModel{interval: interval, slack: slack * interval}
		now := int64(horizon)
		var spots []*modelSpot
		for step := range 5000 {
			for range rng.Int64N(8) {
				now++
				m.level = max(m.level-1, 0)
				m.grant()
			}
			switch k := rng.IntN(10); {
			case k < 5:
				n := 1 + rng.Int64N(5)
				_, _, ok := s.tryNow(now, n)
				want := m.level <= m.slack && len(m.queue) == 0
				same(t, want, ok, step)
				if ok {
					m.level += n * interval
					break
				}
				sp, wait, _ := s.enqueue(now, n, horizon, make(chan struct{}, 1))
				same(t, len(m.queue) < 6, sp != nil, step)
				if sp != nil {
					ms := &modelSpot{sp: sp, n: n}
					total := m.level - m.slack
					for _, o := range m.queue {
						total += o.n * interval
					}
					same(t, total, wait, step)
					m.queue = append(m.queue, ms)
					spots = append(spots, ms)
				}
			case k < 7 && len(spots) > 0: // leaves
				i := rng.IntN(len(spots))
				ms := spots[i]
				if !ms.granted {
					s.cancel(now, ms.sp, ms.n)
					m.queue = slices.DeleteFunc(m.queue, func(o *modelSpot) bool { return o == ms })
					spots = slices.Delete(spots, i, i+1)
				}
			case k < 8 && len(spots) > 0: // needs less
				if ms := spots[rng.IntN(len(spots))]; !ms.granted && ms.n > 1 {
					s.cancel(now, ms.sp, 1)
					ms.n--
				}
			case k < 9: // as if just taken
				s.giveBack(now, loan{n: 1, took: now, stamp: s.state.taken})
				m.level = max(m.level-interval, 0)
				m.grant()
			default:
				s.grant(now)
			}
			s.grant(now)
			for _, ms := range spots {
				same(t, ms.granted, ms.sp.granted, step)
			}
			same(t, len(m.queue), s.waiting, step)
			spots = slices.DeleteFunc(spots, func(ms *modelSpot) bool { return ms.granted })
		}
	})
}

// A caller whose context has ended does not queue, and is counted.
func TestShaperCountsCallersWhoseContextHasEnded(t *testing.T) {
	s := newShaper(t, Shaper{Rate: Per(1, time.Hour)})
	_, err := s.Admit(t.Context(), spillway.Request{Arrived: time.Now()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		_, err = s.Admit(ctx, spillway.Request{Arrived: time.Now()})
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Equal(t, Stats{Name: "shaper", Admitted: 1, Cancelled: 2}, s.Stats())
}
