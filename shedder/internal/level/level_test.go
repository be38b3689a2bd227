package level

import (
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
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
	var first, second [64]int
	both := 0
	for i := range n {
		key := "user-" + strconv.Itoa(i)
		a, b := Position(key, 5), Position(key, 6)
		first[a>>58]++
		second[b>>58]++
		if a < 1<<63 && b < 1<<63 {
			both++
		}
	}
	for i := range first {
		require.InDelta(t, n/64, first[i], 90)
		require.InDelta(t, n/64, second[i], 90)
	}
	require.InDelta(t, n/4, both, 250)
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
func steps(offers map[int]float64, admitted, inFlight, limit, drop float64) (out plan, of routePlan) {
	var h Histogram
	var p planner
	one := &route{}
	f := &routes{rest: one, all: []*route{one}}
	for range 50 {
		all := 0.0
		for class, n := range offers {
			all += n
			for range int(n) {
				h.AddKeyless(class)
			}
		}
		out = p.plan(&h, f, nil, &Tick{
			Dt: 0.02, Admitted: min(all, admitted), Left: min(all, admitted), Refused: all - min(all, admitted), InFlight: inFlight,
			Limit: limit, Drop: drop,
		}, 1)
	}
	return out, one.plan
}

func TestTheMarkFollowsTheNeededRefusals(t *testing.T) {
	low, mid, high := Class(-4), Class(0), Class(4)
	offers := map[int]float64{low: 60, mid: 30, high: 10}
	for _, c := range []struct {
		admitted float64
		mark     int
	}{{99, low}, {70, low}, {35, mid}, {12, mid}, {9, high}, {3, high}} {
		p, _ := steps(offers, c.admitted, 40, 40, 0)
		require.Equal(t, c.mark, p.mark, "room for %v of 100", c.admitted)
	}
	calm, of := steps(offers, 100, 10, 40, 0)
	require.Equal(t, low, calm.mark)
	require.Equal(t, all(), of.keys)
	require.Equal(t, [ranks]float64{above: 60, within: 40, at: 40, behind: 40, next: 40, below: 40}, calm.limits, "nothing is held back")
	busy, _ := steps(offers, 20, 40, 40, 0)
	require.Greater(t, busy.limits[above], 40.0)
	require.Less(t, busy.limits[below], 12.0)
}

// A class that is alone has exactly the limit of the law, and its share of drops, whichever it is.
func TestAClassAloneHasTheWholeLimit(t *testing.T) {
	for _, class := range []int{0, Class(-4), Class(0), Class(4), Classes - 1} {
		for _, admitted := range []float64{100, 50, 10} {
			p, of := steps(map[int]float64{class: 100}, admitted, 40, 40, 0.3)
			require.Equal(t, class, p.mark)
			require.False(t, p.chooses)
			require.Equal(t, all(), of.keys)
			require.Zero(t, of.fits)
			require.InDelta(t, 40, p.limits[at], 0)
			require.Equal(t, class, p.dropAt)
			require.InDelta(t, 0.7, of.stays.keyless, 1e-9)
		}
	}
}

func TestDropsBeginAtTheBottom(t *testing.T) {
	low, mid := Class(-4), Class(0)
	offers := map[int]float64{low: 60, mid: 40}
	p, of := steps(offers, 100, 40, 40, 0.3)
	require.Equal(t, low, p.dropAt)
	require.InDelta(t, 0.5, of.stays.keyless, 1e-9)
	p, of = steps(offers, 100, 40, 40, 0.8)
	require.Equal(t, mid, p.dropAt)
	require.InDelta(t, 0.5, of.stays.keyless, 1e-9)
}

// stateOf returns a State with a plan. Each of the keys has sent its number of requests.
func stateOf(p *plan, of *routePlan, sent map[string]uint64) *State {
	s := &State{}
	for r := range s.limits {
		s.limits[r].Store(100 - 10*int64(r))
	}
	k := newSketch(7)
	for key, n := range sent {
		for class := range Classes {
			k.add(k.place(class, 0, key), n)
		}
	}
	s.sketch.Store(k)
	s.one.set(of, steady)
	s.mark.Store(pack(p, classMask)) // next to nothing is counted
	return s
}

// keyAt returns a key with a position that is, or is not, in the given part of all positions.
func keyAt(part float64, below bool) string {
	for i := 0; ; i++ {
		if key := strconv.Itoa(i); (Position(key, 0) < share(part)) == below {
			return key
		}
	}
}

func ask(s *State, priority int, key string, now int64) Answer {
	return s.Ask(&spillway.Request{Priority: spillway.Priority(priority), Key: key}, now)
}

// Ask refuses by class and by key as a plan says.
func TestAskByRank(t *testing.T) {
	unlucky, lucky := keyAt(0.5, true), keyAt(0.5, false)
	p := &plan{mark: Class(0), next: Class(-4), chooses: true}
	s := stateOf(p, &routePlan{keys: cut{keyless: 0.5, light: 0.5, level: 100}, stays: all()}, map[string]uint64{"heavy": 400})
	for _, c := range []struct {
		priority int
		key      string
		want     rank
	}{
		{4, "", above}, {4, unlucky, above}, {4, "heavy", above}, {1, "", above}, {0, lucky, at}, {0, unlucky, behind}, {-4, lucky, next},
		{-1, lucky, below}, {-5, "", below},
	} {
		got := ask(s, c.priority, c.key, 1)
		require.Equal(t, Answer{Limit: 100 - 10*int64(c.want)}, got, "%+v", c)
	}
	for key, want := range map[string]float64{"": 0.5, "heavy": 0.25, lucky: 1, unlucky: 0} {
		n := 0.0
		for i := range 10_000 {
			if ask(s, 0, key, int64(i+1)).Limit == 100-10*int64(at) {
				n++
			}
		}
		require.InDelta(t, want, n/10_000, 0.02, "requests at the mark with the key %q", key)
	}
}

// Keys below their share fit; only those above it are over.
func TestAskKnowsWhoIsOverItsShare(t *testing.T) {
	s := stateOf(&plan{mark: Class(0), chooses: true}, &routePlan{keys: cut{keyless: 0.5, light: 1, level: 100}, fits: 80, stays: all()},
		map[string]uint64{"small": 60, "heavy": 400, "dear": 400})
	s.Weigh(map[string]float64{"dear": 5})
	over := 0
	for i := range 1000 {
		require.Equal(t, Answer{Limit: 90, Fits: true}, ask(s, 0, "small", int64(i+1)))
		require.Equal(t, Answer{Limit: 90, Fits: true}, ask(s, 0, "unknown", int64(i+1)))
		require.Equal(t, Answer{Limit: 90, Fits: true}, ask(s, 0, "dear", int64(i+1)), "a fifth of the heavy one, by weight")
		if a := ask(s, 0, "heavy", int64(i+1)); a.Over == OfKey {
			require.Equal(t, Answer{Limit: 70, Over: OfKey}, a)
			over++
		}
		require.Equal(t, None, ask(s, 0, "", int64(i+1)).Over)
	}
	require.InDelta(t, 750, over, 50)
}

func TestAskDropsByRank(t *testing.T) {
	unlucky, lucky := keyAt(0.25, true), keyAt(0.25, false)
	s := stateOf(&plan{drops: true, dropAt: Class(0)}, &routePlan{keys: all(), stays: cut{keyless: 0.75, light: 0.75, level: 100}}, map[string]uint64{"heavy": 400})
	for key, want := range map[string]float64{"": 0.25, "heavy": 0.75, lucky: 0, unlucky: 1} {
		n := 0.0
		for i := range 10_000 {
			if ask(s, 0, key, int64(i+1)).Dropped {
				n++
			}
			require.False(t, ask(s, 1, key, int64(i+1)).Dropped)
			require.True(t, ask(s, -1, key, int64(i+1)).Dropped)
		}
		require.InDelta(t, want, n/10_000, 0.02, "key %q", key)
	}
}

func TestAskAllocatesNothing(t *testing.T) {
	var s State
	now := int64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now++
		ask(&s, 0, "a key of a certain length", now)
	}))
	full := stateOf(&plan{mark: Class(0), chooses: true}, &routePlan{keys: cut{light: 1, level: 10}, fits: 10, stays: cut{light: 1, level: 10}}, nil)
	full.Weigh(map[string]float64{"a key of a certain length": 2})
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now++
		ask(full, 0, "a key of a certain length", now)
	}))
}

// Any input makes a plan that is a plan: limits in order, no NaN.
func TestPlansOfAnyInput(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	odd := []float64{0, 1e-9, 0.5, 1, 3, 100, 1e9, math.Inf(1)}
	pick := func() float64 { return odd[rng.IntN(len(odd)-1)] }
	rounds := 40
	if race.Enabled {
		rounds = 3
	}
	for range rounds {
		var s State
		for i := range 200 {
			for range rng.IntN(30) {
				ask(&s, rng.IntN(60)-30, []string{"", "a", strconv.Itoa(i)}[rng.IntN(3)], rng.Int64())
			}
			limit := odd[rng.IntN(len(odd))]
			s.Step(&Tick{
				Dt: pick(), Admitted: pick(), Refused: pick(), Left: pick(), InFlight: pick(), Limit: limit, Drop: min(pick(), 0.98),
				Rotation: rng.Uint64(),
			}, int64(rng.IntN(3)))
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
				ask(&s, i%9-4, strconv.Itoa(i%50), int64(i*7+g))
			}
		})
	}
	for range 200 {
		s.Step(&Tick{Dt: 0.02, Admitted: 50, Refused: 50, Left: 50, InFlight: 9, Limit: 9, Drop: 0.1}, 0)
	}
	all.Wait()
}

func BenchmarkAsk(b *testing.B) {
	for name, key := range map[string]string{"no key": "", "key of 16 bytes": "0123456789abcdef"} {
		b.Run(name, func(b *testing.B) {
			s := stateOf(&plan{mark: Class(0), chooses: true}, &routePlan{keys: cut{keyless: 0.5, light: 1, level: 10}, fits: 10, stays: all()},
				map[string]uint64{key: 50})
			now := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				now += 137
				ask(s, 0, key, now)
			}
		})
	}
}
