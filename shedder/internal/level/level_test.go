package level

import (
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Any int has a class, in the order of the ints, and the named ones with their neighbours have a class each.
func TestClassesKeepTheOrderOfPriorities(t *testing.T) {
	require.Less(t, Classes, 1<<classBits)
	ps := []int{math.MinInt, math.MinInt32, -1024, -1023, -32, -31, -13}
	for p := -12; p <= 12; p++ {
		ps = append(ps, p)
	}
	ps = append(ps, 13, 31, 32, 1023, 1024, math.MaxInt32, math.MaxInt)
	for i, p := range ps {
		c := Class(p)
		require.GreaterOrEqual(t, c, 0)
		require.Less(t, c, Classes)
		if i > 0 {
			require.GreaterOrEqual(t, c, Class(ps[i-1]), "%d and %d", ps[i-1], p)
		}
		require.Equal(t, c, Class(Priority(c)))
	}
	for p := -12; p <= 12; p++ {
		require.Equal(t, p, Priority(Class(p)))
	}
}

// Positions are part of what services agree on without a word: they must not change from version to version.
func TestPositionsAreForAllProcesses(t *testing.T) {
	for _, c := range []struct {
		key      string
		rotation uint64
		want     uint64
	}{
		{"", 0, 0xe220a8397b1dcdaf},
		{"a", 0, 0xe4ef6bc459e6be03}, {"tenant-1", 0, 0x1c0d65146469ccea}, {"tenant-1", 277777, 0x35c75d4eca981b3e},
		{"a user with a longer name", 277777, 0xa2bc642bf47bceb9},
	} {
		require.Equal(t, c.want, Position(c.key, c.rotation), "Position(%q, %d) = %#x", c.key, c.rotation, Position(c.key, c.rotation))
	}
}

// Positions spread evenly, and those of two rotations have nothing to do with each other.
func TestPositionsSpread(t *testing.T) {
	const n = 20_000
	var first, second [cohorts]int
	both := 0
	for i := range n {
		key := "user-" + strconv.Itoa(i)
		a, b := Position(key, 5), Position(key, 6)
		first[a>>(64-cohortBits)]++
		second[b>>(64-cohortBits)]++
		if a < 1<<63 && b < 1<<63 {
			both++
		}
	}
	for i := range first {
		require.InDelta(t, n/cohorts, first[i], 90)
		require.InDelta(t, n/cohorts, second[i], 90)
	}
	require.InDelta(t, n/4, both, 250)
}

// The quantile is the position below which a share of the class is, whatever the mixture of keys and of none.
func TestQuantileAgainstASortedList(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var h Histogram
		var all []uint64
		keyless := rng.IntN(3) * 2000
		for range 6000 {
			p := rng.Uint64()
			h.Add(5, p)
			all = append(all, p)
		}
		for range keyless {
			h.AddKeyless(5)
			all = append(all, rng.Uint64())
		}
		h.Add(6, 1)
		h.fold(0.5, 1)
		require.True(t, h.byKey(5))
		want := rng.Float64()
		below, at := 0, h.quantile(5, want)
		for _, p := range all {
			if p < at {
				below++
			}
		}
		require.InDelta(t, want, float64(below)/float64(len(all)), 0.03)
	}
}

func TestKeysDecideOnlyIfNoneIsHeavy(t *testing.T) {
	var h Histogram
	for i := range 1000 {
		h.Add(3, Position(strconv.Itoa(i), 0))
		h.AddKeyless(4)
		h.Add(5, Position(strconv.Itoa(i), 0))
		if i%5 == 0 {
			h.Add(5, Position("heavy", 0))
		}
	}
	h.fold(1, 1)
	require.True(t, h.byKey(3))
	require.False(t, h.byKey(4), "next to no request has a key")
	require.False(t, h.byKey(5), "one key sends a sixth of the requests")
}

// Classes that send nothing any more are forgotten.
func TestClassesAreForgotten(t *testing.T) {
	var h Histogram
	h.AddKeyless(3)
	for range 40 {
		h.AddKeyless(7)
		h.fold(0.5, 1)
	}
	require.Equal(t, 7, h.lowest(0))
	require.Equal(t, -1, h.below(7))
	require.InDelta(t, 1, h.share(7), 1e-9)
}

// steps feeds a planner for a second of the given offers per class and a capacity, and returns the last plan.
func steps(offers map[int]float64, admitted, inFlight, limit, drop float64) plan {
	var h Histogram
	var p planner
	var out plan
	for range 50 {
		all := 0.0
		for class, n := range offers {
			all += n
			for range int(n) {
				h.AddKeyless(class)
			}
		}
		out = p.plan(&h, &Tick{
			Dt: 0.02, Admitted: min(all, admitted), Left: min(all, admitted), Refused: all - min(all, admitted), InFlight: inFlight,
			Limit: limit, Drop: drop,
		}, 1)
	}
	return out
}

func TestTheMarkFollowsTheNeededRefusals(t *testing.T) {
	low, mid, high := Class(-4), Class(0), Class(4)
	offers := map[int]float64{low: 60, mid: 30, high: 10}
	for _, c := range []struct {
		admitted float64
		mark     int
	}{{99, low}, {70, low}, {35, mid}, {12, mid}, {9, high}, {3, high}} {
		require.Equal(t, c.mark, steps(offers, c.admitted, 40, 40, 0).mark, "room for %v of 100", c.admitted)
	}
	calm := steps(offers, 100, 10, 40, 0)
	require.Equal(t, low, calm.mark)
	require.Equal(t, [ranks]float64{above: 60, at: 40, behind: 40, next: 40, below: 40}, calm.limits, "nothing is held back")
	busy := steps(offers, 20, 40, 40, 0)
	require.Greater(t, busy.limits[above], 40.0)
	require.Less(t, busy.limits[below], 12.0)
}

// A class that is alone has exactly the limit of the law, and its share of drops, whichever it is.
func TestAClassAloneHasTheWholeLimit(t *testing.T) {
	for _, class := range []int{0, Class(-4), Class(0), Class(4), Classes - 1} {
		for _, admitted := range []float64{100, 50, 10} {
			p := steps(map[int]float64{class: 100}, admitted, 40, 40, 0.3)
			require.Equal(t, class, p.mark)
			require.Zero(t, p.position)
			require.InDelta(t, 40, p.limits[at], 0)
			require.Equal(t, class, p.dropAt)
			require.InDelta(t, 0.3, p.drop, 1e-9)
		}
	}
}

func TestDropsBeginAtTheBottom(t *testing.T) {
	low, mid := Class(-4), Class(0)
	offers := map[int]float64{low: 60, mid: 40}
	p := steps(offers, 100, 40, 40, 0.3)
	require.Equal(t, low, p.dropAt)
	require.InDelta(t, 0.5, p.drop, 1e-9)
	p = steps(offers, 100, 40, 40, 0.8)
	require.Equal(t, mid, p.dropAt)
	require.InDelta(t, 0.5, p.drop, 1e-9)
}

// Ask refuses by class and by key what a plan says.
func TestAskByRank(t *testing.T) {
	var s State
	s.limits[above].Store(10)
	s.limits[at].Store(8)
	s.limits[behind].Store(6)
	s.limits[next].Store(4)
	s.limits[below].Store(2)
	s.mark.Store(pack(&plan{mark: Class(0), position: 1 << 63, next: Class(-4)}, 0))
	lucky, unlucky := "", ""
	for i := 0; lucky == "" || unlucky == ""; i++ {
		if key := strconv.Itoa(i); Position(key, 0) < 1<<63 {
			unlucky = key
		} else {
			lucky = key
		}
	}
	for _, c := range []struct {
		priority int
		key      string
		want     int64
	}{{4, "", 10}, {4, unlucky, 10}, {1, "", 10}, {0, lucky, 8}, {0, unlucky, 6}, {-4, lucky, 4}, {-1, lucky, 2}, {-5, "", 2}} {
		got, dropped := s.Ask(c.priority, c.key, 1)
		require.Equal(t, c.want, got, "%+v", c)
		require.False(t, dropped)
	}
	n := 0
	for i := range 10_000 {
		if got, _ := s.Ask(0, "", int64(i)); got == 8 {
			n++
		}
	}
	require.InDelta(t, 5000, n, 200, "requests without a key take their chance")
}

func TestAskDropsByRank(t *testing.T) {
	var s State
	s.drop.Store(1 << 62)
	s.mark.Store(pack(&plan{dropAt: Class(0)}, 0))
	n := 0
	for i := range 10_000 {
		_, dropped := s.Ask(0, "key", int64(i))
		if dropped {
			n++
		}
		_, dropped = s.Ask(1, "key", int64(i))
		require.False(t, dropped)
		_, dropped = s.Ask(-1, "key", int64(i))
		require.True(t, dropped)
	}
	require.InDelta(t, 2500, n, 150, "by chance")
	s.mark.Store(pack(&plan{dropAt: Class(0), dropKeys: 1 << 62}, 0))
	for i := range 100 {
		key := strconv.Itoa(i)
		_, dropped := s.Ask(0, key, int64(i))
		require.Equal(t, Position(key, 0) < 1<<62, dropped, "by key")
	}
}

func TestAskAllocatesNothing(t *testing.T) {
	var s State
	now := int64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now++
		s.Ask(0, "a key of a certain length", now)
	}))
}

// Any input makes a plan that is a plan: limits in order, no NaN.
func TestPlansOfAnyInput(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	odd := []float64{0, 1e-9, 0.5, 1, 3, 100, 1e9, math.Inf(1)}
	pick := func() float64 { return odd[rng.IntN(len(odd)-1)] }
	for range 40 {
		var s State
		for i := range 200 {
			for range rng.IntN(30) {
				s.Ask(rng.IntN(60)-30, []string{"", "a", strconv.Itoa(i)}[rng.IntN(3)], rng.Int64())
			}
			limit := odd[rng.IntN(len(odd))]
			s.Step(&Tick{
				Dt: pick(), Admitted: pick(), Refused: pick(), Left: pick(), InFlight: pick(), Limit: limit, Drop: min(pick(), 0.98),
			}, int64(rng.IntN(3)), rng.Uint64())
			got := make([]int64, ranks)
			for r := range s.limits {
				got[r] = s.limits[r].Load()
				require.Positive(t, got[r])
			}
			require.GreaterOrEqual(t, got[above], got[at], "%v", got)
			require.GreaterOrEqual(t, got[at], got[next])
			require.GreaterOrEqual(t, got[at], got[below])
		}
	}
}

func TestAskDuringSteps(t *testing.T) {
	var s State
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 20_000 {
				s.Ask(i%9-4, strconv.Itoa(i%50), int64(i*7+g))
			}
		})
	}
	for range 200 {
		s.Step(&Tick{Dt: 0.02, Admitted: 50, Refused: 50, Left: 50, InFlight: 9, Limit: 9, Drop: 0.1}, 0, 1)
	}
	all.Wait()
}

func BenchmarkAsk(b *testing.B) {
	for name, key := range map[string]string{"no key": "", "key of 16 bytes": "0123456789abcdef"} {
		b.Run(name, func(b *testing.B) {
			var s State
			s.mark.Store(pack(&plan{mark: Class(0), position: 1 << 63}, 8))
			now := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				now += 137
				s.Ask(0, key, now)
			}
		})
	}
}
