package level

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/inflight"
	"github.com/spillway-go/spillway/internal/splitmix"
)

// A State decides about requests by the latest plan. The zero State knows no limit. [State.Ask] is safe for concurrent
// use, also with [State.Step], of which one call may run at a time.
type State struct {
	mark     atomic.Uint64 // see pack
	one      route         // all requests, while routes is nil
	routes   atomic.Pointer[routes]
	rotation atomic.Uint64
	limits   [ranks]atomic.Int64
	sketch   atomic.Pointer[sketch] // nil until a request has a key
	weights  atomic.Pointer[map[string]float64]
	levels   Histogram
	planner  planner
	adviser  adviser
	alone    routes // one, for the planner
	shift    int    // of the present mark
	fair     float64
}

// The fields of a mark, each of a number of bits from a place on.
const (
	classBits = 5
	nextAt    = classBits
	dropAt    = 2 * classBits
	shiftAt   = 3 * classBits
	chooseAt  = 4 * classBits // 1 if routes or keys decide in the class at the mark
	dropsAt   = chooseAt + 1  // 1 if requests are dropped
	calmAt    = chooseAt + 2  // 1 if the times of requests say how dear they are
	classMask = 1<<classBits - 1
)

func pack(p *plan, shift int) uint64 {
	m := uint64(p.mark) | uint64(p.next)<<nextAt | uint64(p.dropAt)<<dropAt | uint64(shift)<<shiftAt
	if p.calm {
		m |= 1 << calmAt
	}
	if p.chooses {
		m |= 1 << chooseAt
	}
	if p.drops {
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

// estimateOf returns requests per window in the units of a sketch. It returns everything for +Inf.
func estimateOf(requests float64) uint64 {
	return uint64(min(requests, everything>>part) * (1 << part))
}

const everything = 1 << 40 << part

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

// claim returns the claim of a request of a route. Time is in ns; chance follows from it.
func (s *State) claim(class int, route uint64, key string, now int64) claim {
	c := claim{chance: chance(now)}
	k := s.sketch.Load()
	if key == "" || k == nil {
		return c
	}
	c.keyed, c.estimate, c.key, c.rotation = true, k.estimate(k.place(class, route, key)), key, s.rotation.Load()
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
	if l.fits.Load() == everything {
		return side{passes: true, fits: true}
	}
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

// An Answer says what may become of a request. It has no more than four fields, because the compiler keeps such structs in
// registers.
type Answer struct {
	Limit   int64 // greatest number in flight that it may join
	Dropped bool  // it is refused whatever is in flight
	Fits    bool  // its key or its route sends less than its share, so it ranks above others of its priority
	Over    Share // the share that is used up while others need theirs
}

// A Share is one of the shares that a request belongs to.
type Share uint8

// The shares.
const (
	None Share = iota
	OfKey
	OfRoute
)

// Ask returns the answer for a request. Time is in ns since any fixed moment; chance follows from it.
func (s *State) Ask(q *spillway.Request, now int64) Answer {
	mark, class := s.mark.Load(), Class(int(q.Priority))
	// A sample of the levels will do: at high rates, all cores would write to the same counters.
	if shift := mark >> shiftAt & classMask; sampled(shift, now) {
		s.count(class, q, 1<<shift)
	}
	for {
		var a Answer
		if mark>>chooseAt&3 == 0 { // neither keys nor routes matter
			a.Limit = s.limits[s.rank(mark, class)].Load()
		} else {
			a = s.answer(mark, class, q, now)
		}
		was := mark
		if mark = s.mark.Load(); mark == was {
			return a
		}
	}
}

// route returns the route of a request, and all routes, or nil if there is one for all requests.
func (s *State) route(q *spillway.Request) (*routes, *route) {
	f := s.routes.Load()
	if f == nil {
		return nil, &s.one
	}
	return f, f.of(q.Route)
}

// answer returns the answer for a request by the given mark.
func (s *State) answer(mark uint64, class int, q *spillway.Request, now int64) (a Answer) {
	chooses, drops := class == int(mark&classMask) && mark>>chooseAt&1 != 0, mark>>dropsAt&1 != 0 && class <= int(mark>>dropAt&classMask)
	r := s.rank(mark, class)
	if chooses || drops {
		_, of := s.route(q)
		c := s.claim(class, of.number, q.Key, now)
		var own side
		if chooses {
			own = of.keys.of(&c)
			switch {
			case own.fits:
				r, a.Fits = within, true
			case !own.passes:
				r = behind
			}
		}
		if drops {
			a.Dropped = class < int(mark>>dropAt&classMask) || !of.stays.of(&c).passes
		}
		if r == behind || a.Dropped {
			switch {
			case own.heavy && of.keys.fits.Load() > 0:
				a.Over = OfKey
			case of.over.Load():
				a.Over = OfRoute
			}
		}
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

// count enters a request into the histograms, as n of its kind.
func (s *State) count(class int, q *spillway.Request, n uint64) {
	f, r := s.route(q)
	place := keyless
	if q.Key != "" {
		place = keyed
	}
	s.levels.add(class, place, 1)
	if f != nil {
		f.ask(r, class, place, q.Cost)
	}
	if k := s.sketch.Load(); k != nil && q.Key != "" {
		at, weight := k.place(class, r.number, q.Key), 1.0
		if w := s.weights.Load(); w != nil {
			weight = weightOf(*w, q.Key)
		}
		k.add(at, n)
		k.note(class, r.number, at, weight)
	}
}

// Refuse counts a request that was asked for at now, and is refused.
func (s *State) Refuse(q *spillway.Request, now int64) {
	if f := s.routes.Load(); f != nil && sampled(s.mark.Load()>>shiftAt&classMask, now) {
		ns, _ := f.busy(f.of(q.Route), q.Cost)
		f.turned.Add(ns)
	}
}

// Learns reports whether the end of a request says something, so that [State.Done] has to be called.
func (s *State) Learns(q *spillway.Request) bool { return q.Key != "" || s.routes.Load() != nil }

// Done ends an admitted request that was asked for at now.
func (s *State) Done(q *spillway.Request, now int64, res *spillway.Result) {
	mark, f := s.mark.Load(), s.routes.Load()
	if !sampled(mark>>shiftAt&classMask, now) {
		return
	}
	r := &s.one
	if f != nil {
		r = f.of(q.Route)
		f.done(r, q, res)
	}
	if k := s.sketch.Load(); q.Key != "" && k != nil && mark>>calmAt&1 != 0 {
		k.took(k.place(Class(int(q.Priority)), r.number, q.Key), uint64(max(res.Latency, 0)))
	}
}

// samples is how many levels are counted in a tick, about, if there are more.
const samples = 256

// Step makes a new plan. No limit becomes less than least.
func (s *State) Step(t *Tick, least int64) {
	s.rotation.Store(t.Rotation)
	f := s.routes.Load()
	if f == nil {
		f = &s.alone
		f.rest, f.all = &s.one, append(f.all[:0], &s.one)
	}
	p := s.planner.plan(&s.levels, f, s.sketch.Load(), t, float64(uint64(1)<<s.shift))
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
	s.fair, s.alone.level = math.Inf(1), f.level
	for _, r := range f.all {
		r.set(&r.plan, s.planner.floor)
		if r.plan.fits > 0 {
			s.fair = min(s.fair, r.plan.fits/s.planner.window())
		}
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

// ShareByRoute divides the busy time among routes, or ceases to.
func (s *State) ShareByRoute(on bool) {
	switch f := s.routes.Load(); {
	case !on:
		s.routes.Store(nil)
	case f == nil:
		s.routes.Store(newRoutes())
	}
}

// Cost returns how long a request of a route takes in a calm service, or 0 if that is unknown.
func (s *State) Cost(route string) time.Duration {
	if f := s.routes.Load(); f != nil {
		return f.cost(route)
	}
	return 0
}

// Routes returns the number of routes that have a share of their own.
func (s *State) Routes() int {
	if f := s.routes.Load(); f != nil {
		return len(*f.known.Load())
	}
	return 0
}

// Mark returns the priority below which requests only get what the others leave.
func (s *State) Mark() int { return Priority(int(s.mark.Load() & classMask)) }

// FairShare returns the requests per second above which a key is cut in favour of others, at a weight of 1. It is +Inf
// while none is. Like Step, it is not safe for concurrent use.
func (s *State) FairShare() float64 { return s.fair }

// Mix returns how long the requests that end now take, as a multiple of what requests take when none is refused, by the costs
// of their routes; and how long the refused ones take, as a multiple of those that end. Like Step, it is not safe for
// concurrent use.
func (s *State) Mix() (now, refused float64) {
	if f := s.routes.Load(); f != nil {
		return f.mix, f.refusedMix
	}
	return 1, 1
}

// RouteShare returns the busy time per second, as a number of requests at work, above which a route is cut in favour of
// others. It is +Inf while none is. Like Step, it is not safe for concurrent use.
func (s *State) RouteShare() float64 { return s.alone.level }

// Advice returns what clients should hold back. It must not be called during [State.Step].
func (s *State) Advice() Advice { return s.adviser.advice() }
