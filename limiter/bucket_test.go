package limiter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
)

func newBucket(t testing.TB, r Rate, burst int) *meter {
	t.Helper()
	b, err := New(Bucket{Rate: r, Burst: burst})
	require.NoError(t, err)
	return b.(*meter)
}

const d = 100 * time.Millisecond

// What x/time/rate decides, and where the clock runs backwards, what it should.
func TestBucketDecides(t *testing.T) {
	tenth := Per(10, time.Second)
	for name, c := range map[string]struct {
		burst int
		calls []call
	}{
		"burst 1": {1, []call{{0, 1, true}, {0, 1, false}, {0, 1, false}, {d, 1, true}, {d, 1, false}, {d, 1, false},
			{2 * d, 2, false}, {2 * d, 1, true}, {2 * d, 1, false}}},
		"burst 3": {3, []call{{0, 2, true}, {0, 2, false}, {0, 1, true}, {0, 1, false}, {d, 4, false}, {2 * d, 1, true},
			{3 * d, 1, true}, {4 * d, 1, true}, {4 * d, 1, true}, {4 * d, 1, false}, {9 * d, 3, true}, {9 * d, 0, true}}},
		"backwards": {1, []call{{0, 1, true}, {d, 1, true}, {d / 2, 1, false}, {d * 3 / 2, 1, false}, {2 * d, 1, true}}},
	} {
		t.Run(name, func(t *testing.T) { play(t, newBucket(t, tenth, c.burst), c.calls) })
	}
}

func TestBucketThatGainsNothing(t *testing.T) {
	b := newBucket(t, Per(0, time.Second), 1)
	play(t, b, []call{{0, 1, true}, {0, 1, false}, {24 * time.Hour, 1, false}, {400 * 24 * time.Hour, 1, false}})
	require.Equal(t, State{Limit: 1, NextIn: never, FullIn: never}, b.PeekAt(after(0)))
	err := b.AllowAt(after(0), 1)
	require.Equal(t, &spillway.Rejection{Policy: "token bucket", Reason: "rate exceeded", OverQuota: true}, err)

	day := 500 * 24 * time.Hour
	require.NoError(t, b.TuneAt(after(day), Bucket{Rate: Per(10, time.Second), Burst: 1}))
	play(t, b, []call{{day, 1, false}, {day + d - 1, 1, false}, {day + d, 1, true}})
}

func TestBucketTellsWhatRemains(t *testing.T) {
	b := newBucket(t, Per(10, time.Second), 10)
	peek := func(at time.Duration) State { return b.PeekAt(after(at)) }
	require.Equal(t, State{Limit: 10, Remaining: 10}, peek(0))
	require.NoError(t, b.AllowAt(after(0), 1))
	require.Equal(t, State{Limit: 10, Remaining: 9, NextIn: d, FullIn: d}, peek(0))
	require.NoError(t, b.AllowAt(after(0), 2))
	require.Equal(t, State{Limit: 10, Remaining: 7, NextIn: d, FullIn: 3 * d}, peek(0))
	require.NoError(t, b.AllowAt(after(0), 7))
	require.Equal(t, State{Limit: 10, Remaining: 0, NextIn: d, FullIn: time.Second}, peek(0))
	require.Equal(t, State{Limit: 10, Remaining: 0, NextIn: d / 2, FullIn: time.Second - d/2}, peek(d/2))
	require.False(t, b.Idle(after(999*time.Millisecond)))
	require.True(t, b.Idle(after(time.Second)))
	require.Equal(t, State{Limit: 10, Remaining: 10}, peek(time.Minute))

	require.Equal(t, spillway.Quota{Name: "token bucket", Limit: 10, Window: time.Second, Reset: d / 2}, b.Quota(after(d/2), spillway.Request{}))
}

func TestBucketReserves(t *testing.T) {
	b := newBucket(t, Per(10, time.Second), 2)
	reserve := func(at time.Duration, n int, want time.Duration) Reservation {
		t.Helper()
		r, err := b.ReserveAt(after(at), n, never)
		require.NoError(t, err)
		require.Equal(t, want, r.Delay())
		return r
	}
	reserve(0, 2, 0)
	reserve(0, 2, 2*d)
	last := reserve(3*d, 2, d)
	_, err := b.ReserveAt(after(3*d), 3, never)
	var tooMuch *CostError
	require.ErrorAs(t, err, &tooMuch)
	require.Equal(t, []int{3, 2}, []int{tooMuch.Cost, tooMuch.Max})
	require.EqualError(t, err, "limiter: token bucket: cost 3 exceeds what can ever pass, 2")
	require.ErrorIs(t, err, spillway.ErrRejected)

	last.CancelAt(after(3 * d))
	last.CancelAt(after(3 * d)) // once is enough
	reserve(3*d, 2, d)

	_, err = b.ReserveAt(after(3*d), 1, 2*d-1)
	require.ErrorIs(t, err, spillway.ErrRejected, "one ns too long")
	reserve(3*d, 1, 2*d)
}

// As in x/time, Cancel keeps the tokens that later reservations hold: their callers would collide with newcomers.
func TestBucketCancelKeepsThePromiseToThoseBehind(t *testing.T) {
	b := newBucket(t, Per(10, time.Second), 10)
	require.NoError(t, b.AllowAt(after(0), 10))
	ten, err := b.ReserveAt(after(0), 10, never)
	require.NoError(t, err)
	five, err := b.ReserveAt(after(0), 5, never)
	require.NoError(t, err)
	require.Equal(t, 1500*time.Millisecond, five.Delay())
	ten.CancelAt(after(0))
	require.Error(t, b.AllowAt(after(15*d), 6), "with the five that are used now that would be 11")
	require.NoError(t, b.AllowAt(after(15*d), 0))

	b = newBucket(t, Per(10, time.Second), 10)
	require.NoError(t, b.AllowAt(after(0), 10))
	ten, err = b.ReserveAt(after(0), 10, never)
	require.NoError(t, err)
	five, err = b.ReserveAt(after(0), 5, never)
	require.NoError(t, err)
	five.CancelAt(after(0))
	ten.CancelAt(after(0))
	r, err := b.ReserveAt(after(0), 1, never)
	require.NoError(t, err)
	require.Equal(t, d, r.Delay(), "from the last on all are back")
}

// What time has given back, a cancel does not give back again.
func TestBucketCancelTooLate(t *testing.T) {
	b := newBucket(t, Per(10, time.Second), 1)
	r, err := b.ReserveAt(after(0), 1, 0)
	require.NoError(t, err)
	require.NoError(t, b.AllowAt(after(d), 1))
	r.CancelAt(after(d))
	require.Error(t, b.AllowAt(after(d), 1), "that would be two at once with a burst of one")
}

// Debt, as juju/ratelimit has it.
func TestBucketDebt(t *testing.T) {
	const ms = time.Millisecond
	b := newBucket(t, Per(4, time.Second), 10)
	for i, c := range []struct {
		at   time.Duration
		n    int
		wait time.Duration
	}{{0, 10, 0}, {0, 1, 250 * ms}, {250 * ms, 1, 250 * ms}} {
		r, err := b.ReserveAt(after(c.at), c.n, never)
		require.NoError(t, err)
		require.Equal(t, c.wait, r.Delay(), "%d", i)
	}
	b = newBucket(t, Per(100, time.Second), 1)
	require.NoError(t, b.AllowAt(after(0), 1))
	for i, c := range []struct{ at, wait time.Duration }{{7 * ms, 3 * ms}, {8 * ms, 12 * ms}} {
		r, err := b.ReserveAt(after(c.at), 1, never)
		require.NoError(t, err)
		require.Equal(t, c.wait, r.Delay(), "%d", i)
	}
}

func TestBucketSetLimit(t *testing.T) {
	b := newBucket(t, Per(10, time.Second), 10)
	require.NoError(t, b.AllowAt(after(0), 3))
	require.NoError(t, b.TuneAt(after(0), Bucket{Rate: Per(20, time.Second), Burst: 20}))
	require.Equal(t, int64(17), b.PeekAt(after(0)).Remaining, "raised by ten")
	require.NoError(t, b.TuneAt(after(0), Bucket{Rate: Per(5, time.Second), Burst: 5}))
	require.Equal(t, State{Limit: 5, Remaining: 2, NextIn: 2 * d, FullIn: 6 * d}, b.PeekAt(after(0)))
	require.NoError(t, b.TuneAt(after(0), Bucket{Rate: Per(1, time.Second), Burst: 2}))
	require.Equal(t, int64(0), b.PeekAt(after(0)).Remaining)
	require.Equal(t, 2*time.Second, b.PeekAt(after(0)).NextIn)
	err := b.TuneAt(after(0), Bucket{Rate: Rate{}, Burst: 1})
	require.EqualError(t, err, "limiter: Bucket: Rate.Per must be positive, got 0s")
	require.Equal(t, int64(2), b.PeekAt(after(0)).Limit, "nothing has changed")
}

func TestBucketAgainstModel(t *testing.T) {
	for _, r := range []Rate{
		Per(10, time.Second), Per(7, time.Minute), Per(1, 24*time.Hour), Per(333, time.Second), Per(3e8, time.Second),
		Per(999_999_937, time.Second), Per(1e9, time.Second), Per(1_000_000_007, time.Second), Per(1, 3), Per(5, 1),
	} {
		t.Run(r.String(), func(t *testing.T) {
			seeds(t, 4, func(t *testing.T, rng *rand.Rand) {
				burst := 1 + rng.IntN(20)
				step := max(r.Per/time.Duration(r.Tokens), 1)
				against(t, rng, newBucket(t, r, burst), newBucketModel(r, burst), burst, 2*step, 1200)
			})
		})
	}
}

// Over a long time the rate is what it says to the last token.
func TestBucketIsExact(t *testing.T) {
	for _, r := range []Rate{Per(3e8, time.Second), Per(7e8, time.Second), Per(1_007_777, time.Second), Per(7, time.Minute)} {
		g, err := newGCRA("", r, 2, "") // with room for the fraction of a token that comes in the last ns of a wait
		require.NoError(t, err)
		var s gcraState
		passed, now := int64(0), int64(horizon)
		for range 200_000 {
			wait, _, ok := g.take(&s, moment{ns: now}, 1, 0)
			if ok {
				passed++
				continue
			}
			now += wait // the next instant at which there is one
		}
		due := 2 + (now-horizon)*int64(r.Tokens)/int64(r.Per)
		require.InDelta(t, due, passed, 1, "%v", r)
	}
}

// The same million schedules to x/time/rate and to GCRA: they agree, except where floats cannot tell.
func TestBucketAgainstXTime(t *testing.T) {
	schedules := 1_000_000
	if race.Enabled || testing.Short() {
		schedules = 10_000
	}
	rng := rand.New(rand.NewPCG(1, 2))
	unclear, calls := 0, 0
	for range schedules {
		r := Per(1+rng.IntN(1000), []time.Duration{time.Second, time.Minute, time.Millisecond}[rng.IntN(3)])
		burst := 1 + rng.IntN(10)
		g, err := newGCRA("", r, burst, "")
		require.NoError(t, err)
		var s gcraState
		x := rate.NewLimiter(rate.Limit(float64(r.Tokens)/r.Per.Seconds()), burst)
		now, step := int64(horizon), 2*int64(r.Per)/int64(r.Tokens)
		for range 16 {
			calls++
			now += rng.Int64N(step)
			n := 1 + rng.Int64N(int64(burst))
			level, _ := g.levelAt(&s, now)
			_, _, ok := g.take(&s, moment{ns: now}, n, 0)
			if ok == x.AllowN(start.Add(time.Duration(now-horizon)), int(n)) {
				continue
			}
			missing := float64(level+n*g.b-g.full) / float64(g.b)
			most := 1e-5 + float64(g.a)/float64(g.b) // x/time ignores what comes within a ns
			require.Less(t, math.Abs(missing), most, "rate %v, burst %d: they differ by %v tokens", r, burst, missing)
			unclear++
			break // from here on they have different histories
		}
	}
	require.Less(t, unclear, calls/1000)
}

func TestBucketStats(t *testing.T) {
	b := newBucket(t, Per(1, time.Second), 2)
	r, err := b.ReserveAt(after(0), 2, 0)
	require.NoError(t, err)
	play(t, b, []call{{0, 1, false}, {0, 1, false}, {0, 3, false}, {0, -1, false}})
	r.RefundAt(after(0), 1)
	require.Equal(t, Stats{Name: "token bucket", Admitted: 1, Refused: 2, ByReason: []spillway.Refusal{{Policy: "token bucket", Reason: "rate exceeded", Count: 2}}, Impossible: 2, Returned: 1}, b.Stats())
	r.RefundAt(after(0), -5)
	r.RefundAt(after(0), 0)
	r.RefundAt(after(0), math.MaxInt)
	require.Equal(t, int64(2), b.PeekAt(after(0)).Remaining, "no more than it held")
	r.RefundAt(after(0), 1)
	require.Equal(t, int64(2), b.Stats().Returned)
}

func TestBucketOptions(t *testing.T) {
	for want, o := range map[string]Bucket{
		"limiter: Bucket: Rate.Per must be positive, got 0s":              {},
		"limiter: Bucket: Rate.Per must be positive, got -1s":             {Rate: Per(1, -time.Second)},
		"limiter: Bucket: Rate.Tokens must not be negative, got -1":       {Rate: Per(-1, time.Second)},
		"limiter: Bucket: Burst must be at least 1, got -1":               {Rate: Per(1, 1), Burst: -1},
		"limiter: Bucket: Name must be printable ASCII, got \"b\\u00fc\"": {Rate: Per(1, 1), Name: "bü"},
		"limiter: Bucket: Burst of 1000000000 tokens is too much at a rate of 1 per 24h0m0s": {
			Rate: Per(1, 24*time.Hour), Burst: 1e9,
		},
	} {
		b, err := New(o)
		require.Nil(t, b)
		if o.Name != "" {
			require.ErrorContains(t, err, "Name must be printable ASCII")
			continue
		}
		require.EqualError(t, err, want)
	}
	b := spillway.Must(New(Bucket{Rate: Per(50, time.Second), Name: "burst"}))
	require.Equal(t, int64(50), b.PeekAt(readClock()).Limit)
	require.Equal(t, "burst", b.Stats().Name)
}

func FuzzGCRA(f *testing.F) {
	f.Add(10, int64(time.Second), 5, []byte{1, 2, 3, 255, 0, 9})
	f.Add(1_000_000_007, int64(time.Second), 1, []byte{200, 100, 1, 1, 1})
	f.Add(1, int64(24*time.Hour), 100, []byte{0, 0, 0, 0, 255, 255})
	f.Fuzz(func(t *testing.T, tokens int, per int64, burst int, script []byte) {
		g, err := newGCRA("Bucket", Rate{tokens, time.Duration(per)}, burst, "Burst")
		if err != nil {
			return
		}
		var s gcraState
		now := int64(horizon)
		for i, c := range script[:min(len(script), 500)] {
			switch c % 4 {
			case 0:
				now = min(now+1<<min(c/4, 61), 2*horizon)
			case 1:
				now = max(now-1<<(c/8), 0)
			}
			n := min(int64(c)+1, g.burst)
			before, _ := g.levelAt(&s, now)
			wait, stamp, ok := g.take(&s, moment{ns: now}, n, int64(c%3)*horizon/2)
			require.Equal(t, uint64(0), stamp>>63, "step %d", i)
			require.True(t, s.level >= 0 && s.level <= maxLevel, "step %d: level %d", i, s.level)
			if !ok {
				require.Positive(t, wait, "step %d", i)
				continue
			}
			require.GreaterOrEqual(t, wait, int64(0), "step %d", i)
			if c%5 == 0 {
				g.giveBack(&s, moment{ns: now}, loan{n: n, took: now, stamp: stamp})
				require.Equal(t, before, s.level, "step %d: given back at once", i)
			}
			st := g.peek(&s, moment{ns: now})
			require.True(t, st.Remaining >= 0 && st.Remaining <= g.burst && st.NextIn >= 0 && st.FullIn >= st.NextIn, "%+v", st)
		}
	})
}

// Allow counts as the other ways in do.
func TestAllowCounts(t *testing.T) {
	b := newBucket(t, Per(3, time.Hour), 3)
	for i := range 5 {
		require.Equal(t, i < 3, b.Allow())
	}
	s := b.Stats()
	require.EqualValues(t, 3, s.Admitted)
	require.EqualValues(t, 2, s.Refused)
}
