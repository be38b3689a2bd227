package level

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/inflight"
	"github.com/spillway-go/spillway/internal/splitmix"
)

// A State decides about requests by the latest plan. The zero State knows no limit. [State.Ask] is safe for concurrent
// use, also with [State.Step], of which one call may run at a time.
type State struct {
	mark     atomic.Uint64 // see pack
	keys     line          // requests of the class at the mark that are not behind
	stays    line          // requests of the class dropAt that are not dropped
	rotation atomic.Uint64
	limits   [ranks]atomic.Int64
	sketch   atomic.Pointer[sketch] // nil until a request has a key
	weights  atomic.Pointer[map[string]float64]
	levels   Histogram
	planner  planner
	adviser  adviser
	shift    int // of the present mark
	fair     float64
}

// The fields of a mark, each of a number of bits from a place on.
const (
	classBits = 5
	nextAt    = classBits
	dropAt    = 2 * classBits
	shiftAt   = 3 * classBits
	byKeysAt  = 4 * classBits // 1 if keys decide in the class at the mark
	dropsAt   = byKeysAt + 1  // 1 if requests are dropped
	calmAt    = byKeysAt + 2  // 1 if the times of requests say how dear they are
	classMask = 1<<classBits - 1
)

func pack(p *plan, shift int) uint64 {
	m := uint64(p.mark) | uint64(p.next)<<nextAt | uint64(p.dropAt)<<dropAt | uint64(shift)<<shiftAt
	if p.calm {
		m |= 1 << calmAt
	}
	if p.keys != all() {
		m |= 1 << byKeysAt
	}
	if p.stays != all() || p.dropAt > 0 {
		m |= 1 << dropsAt
	}
	return m
}

// A line is a cut in the units of a claim.
type line struct {
	keyless, light, level, fits, floor atomic.Uint64
}

func (l *line) set(c cut, fits, floor float64) {
	l.keyless.Store(share(c.keyless))
	l.light.Store(share(c.light))
	l.level.Store(estimateOf(c.level))
	l.fits.Store(estimateOf(fits))
	l.floor.Store(estimateOf(floor))
}

// estimateOf returns requests per window in the units of a sketch.
func estimateOf(requests float64) uint64 { return uint64(min(requests, 1<<40) * (1 << part)) }

// share returns x, 0 to 1, as a share of 2^64.
func share(x float64) uint64 {
	if x >= 1 {
		return math.MaxUint64
	}
	return uint64(max(x, 0)*(1<<63)) << 1
}

// A claim is what a request may ask for by its key.
type claim struct {
	keyed    bool
	estimate uint64 // requests of the key in the window
	chance   uint64 // a random draw
	key      string // it draws for light keys, by its position in this rotation
	rotation uint64
}

// claim returns the claim of a request. Time is in ns; chance follows from it.
func (s *State) claim(class int, key string, now int64) claim {
	c := claim{chance: chance(now)}
	k := s.sketch.Load()
	if key == "" || k == nil {
		return c
	}
	c.keyed, c.estimate, c.key, c.rotation = true, k.estimate(k.place(class, key)), key, s.rotation.Load()
	if w := s.weights.Load(); w != nil {
		c.estimate = uint64(float64(c.estimate) / weightOf(*w, key))
	}
	return c
}

// A side is the side of a line that a request is on.
type side struct{ passes, fits, heavy bool }

// of returns the side of a claim. Chance draws for heavy keys, so that each gets its share, and a hash of the key for
// light ones, so that the same keys pass.
func (l *line) of(c *claim) side {
	if !c.keyed {
		return side{passes: c.chance <= l.keyless.Load()}
	}
	fits, most := l.fits.Load(), l.light.Load()
	s := side{heavy: c.estimate > l.floor.Load(), fits: fits > 0 && c.estimate <= fits}
	if s.heavy {
		drawn, _ := bits.Mul64(c.chance, c.estimate)
		s.passes = c.chance <= most && drawn < l.level.Load()
	} else {
		s.passes = most == math.MaxUint64 || ^Position(c.key, c.rotation) <= most
	}
	return s
}

// sampled reports whether a request is in a sample of 2^-shift of all.
func sampled(shift uint64, now int64) bool { return (uint64(now)*splitmix.Gamma)>>(64-shift) == 0 }

func chance(now int64) uint64 { return ^splitmix.Mix(uint64(now) + splitmix.Gamma) }

func weightOf(weights map[string]float64, key string) float64 {
	if w, ok := weights[key]; ok {
		return w
	}
	return 1
}

// An Answer says what may become of a request.
type Answer struct {
	Limit   int64 // greatest number in flight that it may join
	Dropped bool  // it is refused whatever is in flight
	Over    bool  // its key has had its share, and other keys need theirs
	Fits    bool  // its key sends less than its share, so it ranks above others of its priority
}

// Ask returns the answer for a request. Time is in ns since any fixed moment; chance follows from it.
func (s *State) Ask(priority int, key string, now int64) Answer {
	mark, class := s.mark.Load(), Class(priority)
	// A sample of the levels will do: at high rates, all cores would write to the same counters.
	if shift := mark >> shiftAt & classMask; sampled(shift, now) {
		s.count(class, key, 1<<shift)
	}
	for {
		a, was := s.answer(mark, class, key, now), mark
		if mark = s.mark.Load(); mark == was {
			return a
		}
	}
}

// answer returns the answer for a request by the given mark.
func (s *State) answer(mark uint64, class int, key string, now int64) (a Answer) {
	atMark, drops := class == int(mark&classMask) && mark>>byKeysAt&1 != 0, mark>>dropsAt&1 != 0 && class <= int(mark>>dropAt&classMask)
	r := s.rank(mark, class)
	if atMark || drops {
		c := s.claim(class, key, now)
		var own side
		if atMark {
			own = s.keys.of(&c)
			switch {
			case own.fits:
				r, a.Fits = within, true
			case !own.passes:
				r = behind
			}
		}
		if drops {
			a.Dropped = class < int(mark>>dropAt&classMask) || !s.stays.of(&c).passes
		}
		a.Over = own.heavy && (r == behind || a.Dropped) && s.keys.fits.Load() > 0
	}
	a.Limit = s.limits[r].Load()
	return a
}

// Limit returns the greatest number in flight that a request may join that has waited. A share of its key does not
// count, because keys take turns while they wait.
func (s *State) Limit(priority int, fits bool) int64 {
	mark, class := s.mark.Load(), Class(priority)
	for {
		r := s.rank(mark, class)
		if fits && r == at {
			r = within
		}
		limit, was := s.limits[r].Load(), mark
		if mark = s.mark.Load(); mark == was {
			return limit
		}
	}
}

// Weight returns the share of a key, relative to a key that is not in the map of [State.Weigh].
func (s *State) Weight(key string) float64 {
	if w := s.weights.Load(); w != nil {
		return weightOf(*w, key)
	}
	return 1
}

// rank returns the rank of requests of a class whose keys do not decide.
func (s *State) rank(mark uint64, class int) rank {
	switch marked := int(mark & classMask); {
	case class > marked:
		return above
	case class == marked:
		return at
	case class == int(mark>>nextAt&classMask):
		return next
	}
	return below
}

// count enters a request into the histogram, as n of its kind.
func (s *State) count(class int, key string, n uint64) {
	if key == "" {
		s.levels.AddKeyless(class)
		return
	}
	s.levels.Add(class)
	if k := s.sketch.Load(); k != nil {
		at, weight := k.place(class, key), 1.0
		if w := s.weights.Load(); w != nil {
			weight = weightOf(*w, key)
		}
		k.add(at, n)
		k.note(class, at, weight)
	}
}

// Took tells how long an admitted request was in flight. Now is the time at which it was asked for.
func (s *State) Took(priority int, key string, now int64, d time.Duration) {
	k, mark := s.sketch.Load(), s.mark.Load()
	if key == "" || k == nil || mark>>calmAt&1 == 0 || !sampled(mark>>shiftAt&classMask, now) {
		return
	}
	k.took(k.place(Class(priority), key), uint64(max(d, 0)))
}

// samples is how many levels are counted in a tick, about, if there are more.
const samples = 256

// Step makes a new plan. No limit becomes less than least.
func (s *State) Step(t *Tick, least int64) {
	s.rotation.Store(t.Rotation)
	p := s.planner.plan(&s.levels, s.sketch.Load(), t, float64(uint64(1)<<s.shift))
	s.turn(t)
	s.adviser.step(t, &s.levels.fresh)
	s.shift = bits.Len64(uint64(t.Admitted+t.Refused) / samples)
	s.shift = min(s.shift, classMask)
	var limits [ranks]int64
	for r := range limits {
		if limits[r] = inflight.NoLimit; t.Limit < math.MaxInt32 { // a NaN is no limit
			limits[r] = max(1, int64(p.limits[r]), least)
		}
		// Until the mark is new, neither the old nor the new limit of a rank is exceeded.
		s.limits[r].Store(min(limits[r], s.limits[r].Load()))
	}
	s.keys.set(p.keys, p.fits, s.planner.floor)
	s.stays.set(p.stays, 0, s.planner.floor)
	s.fair = math.Inf(1)
	if p.fits > 0 {
		s.fair = p.fits / s.planner.window()
	}
	s.mark.Store(pack(&p, s.shift))
	for r := range limits {
		s.limits[r].Store(limits[r])
	}
}

// turn moves the window of the sketch on. It makes the sketch when the first requests have had a key.
func (s *State) turn(t *Tick) {
	if k := s.sketch.Load(); k != nil {
		k.turn(t.Dt, s.planner.window())
		return
	}
	for c := range s.levels.mass {
		if s.levels.mass[c][keyed] > 0 {
			s.sketch.Store(newSketch(t.Seed))
			return
		}
	}
}

// Weigh sets the shares of keys, relative to a key that is not in the map. The caller does not change the map.
func (s *State) Weigh(weights map[string]float64) {
	if len(weights) == 0 {
		s.weights.Store(nil)
		return
	}
	s.weights.Store(&weights)
}

// Mark returns the priority below which requests only get what the others leave.
func (s *State) Mark() int { return Priority(int(s.mark.Load() & classMask)) }

// FairShare returns the requests per second above which a key is cut in favour of others, at a weight of 1. It is +Inf
// while none is. Like Step, it is not safe for concurrent use.
func (s *State) FairShare() float64 { return s.fair }

// Advice returns what clients should hold back. It must not be called during [State.Step].
func (s *State) Advice() Advice { return s.adviser.advice() }
