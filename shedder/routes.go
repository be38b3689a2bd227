package shedder

import (
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/internal/splitmix"
)

// routes share the capacity among the routes, if it does not suffice for all of them. Each route may use the same part of the
// busy time; what it does not need is left to the others (max-min fairness). The busy time of a route is its rate times its
// cost, the latency of one of its requests in a calm service.
type routes struct {
	known atomic.Pointer[map[string]*route]
	mark  atomic.Uint32 // how many bits of chance a request needs to be counted; inForce while shares are in force
	mu    sync.Mutex    // held to add a route

	// The rest belongs to the tick.
	all     []*route // in the order in which they were added
	rest    route    // all routes beyond mostRoutes, and requests without one
	refused float64  // over about the last second
	offered float64
	calm    float64 // seconds since the last refusal
	full    float64 // share of the limit that is in flight, averaged
	gain    float64 // capacity to give out, as a multiple of what was used
}

// A route is one of routes.
type route struct {
	beyond atomic.Uint64 // share of its requests, of 2^64, that is beyond its part of the capacity
	asked  atomic.Uint32 // requests counted since the last tick
	word   atomic.Int64  // successes of them, and the sum of their latencies, as in an answerCell
	name   string

	// The rest belongs to the tick.
	offered  float64 // requests over about the last routeSpan seconds
	answered float64 // successes
	sample   struct{ answered, latency, seconds float64 }
	cost     float64 // seconds; 0 until it is known
	need     float64 // busy time that its requests ask for
}

const (
	mostRoutes   = 256
	longestRoute = 256    // bytes
	inForce      = 1 << 7 // of routes.mark
	counted      = 1 << 8 // of a Ticket: beside the number of the cell
	routeSpan    = 2.0    // seconds over which the needs of routes are averaged
	costSample   = 100.0  // successes whose mean is a sample of the cost
	routeStay    = 0.5    // seconds over which the number in flight is averaged
	costEvery    = 5.0    // seconds after which fewer will do
	calmAfter    = 1.0    // seconds since the last refusal
	costRise     = 0.02   // rise of a cost in a calm second, at most
	routeFull    = 0.7    // share of the limit that the parts of all routes should fill: room for bursts, and a queue for the CPUs
	mostGain     = 1.5
	leastGain    = 0.9
	routeDraw    = 0x5851f42 // makes the draw another one than those of the priorities
)

func newRoutes() *routes {
	f := &routes{gain: 1}
	f.known.Store(&map[string]*route{})
	return f
}

// of returns the route of a request.
func (f *routes) of(name string) *route {
	if r := (*f.known.Load())[name]; r != nil {
		return r
	}
	return &f.rest
}

// ask counts a request that arrives at now, and reports whether the capacity is shared, and whether the request is beyond
// the part of its route.
func (f *routes) ask(name string, now int64) (at int, shared, beyond bool) {
	mark := f.mark.Load()
	if (uint64(now)*splitmix.Gamma)>>(64-mark&63) == 0 {
		at = counted
	} else if mark&inForce == 0 {
		return 0, false, false
	}
	r := f.of(name)
	if at != 0 {
		r.asked.Add(1)
	}
	odds := r.beyond.Load()
	return at, mark&inForce != 0, odds != 0 && splitmix.Mix(uint64(now)^routeDraw) < odds
}

// add records a success that was counted, and a route that is new.
func (f *routes) add(name string, latency int64) {
	r := f.of(name)
	if r == &f.rest && name != "" && len(name) <= longestRoute && len(*f.known.Load()) < mostRoutes {
		r = f.enter(name)
	}
	r.word.Add(max(latency, 0)/unit<<countBits + 1)
}

func (f *routes) enter(name string) *route {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := *f.known.Load()
	if r := old[name]; r != nil {
		return r
	}
	if len(old) >= mostRoutes {
		return &f.rest
	}
	next := make(map[string]*route, len(old)+1)
	maps.Copy(next, old)
	r := &route{name: strings.Clone(name)}
	next[r.name] = r
	f.known.Store(&next)
	return r
}

// step makes new parts. Admitted and refused are the requests since the last tick, full is in flight as a share of the
// limit, or 0 without a limit.
func (f *routes) step(dt, admitted, refused, full float64) {
	known := *f.known.Load()
	if len(known)+1 != len(f.all) {
		f.all = append(slices.Collect(maps.Values(known)), &f.rest)
		slices.SortFunc(f.all, func(a, b *route) int { return strings.Compare(a.name, b.name) }) // sums repeat to the bit
	}
	shift := f.mark.Load() & 63
	weight, keep := float64(uint64(1)<<shift), math.Exp(-dt/routeSpan)
	if f.calm += dt; refused > 0 {
		f.calm = 0
	}
	f.offered = f.offered*keep + admitted + refused
	f.refused = f.refused*keep + refused
	for _, r := range f.all {
		r.take(dt, keep, weight, f.calm > calmAfter)
	}
	f.full += (full - f.full) * -math.Expm1(-dt/routeStay)
	f.gain = min(max(f.gain+dt*(routeFull-f.full), leastGain), mostGain)
	mark := uint32(bits.Len64(uint64(admitted+refused) / routeSamples))
	if f.share() {
		mark |= inForce
	}
	f.mark.Store(mark)
}

const routeSamples = 256 // requests that are counted in a tick, about, if there are more

// take folds the counts of a tick.
func (r *route) take(dt, keep, weight float64, calm bool) {
	word := r.word.Swap(0)
	answered, latency := float64(word&(1<<countBits-1)), float64(word>>countBits)*unit/1e9
	r.offered = r.offered*keep + weight*float64(r.asked.Swap(0))
	r.answered = r.answered*keep + weight*answered
	s := &r.sample
	s.answered, s.latency, s.seconds = s.answered+answered, s.latency+latency, s.seconds+dt
	if s.answered < costSample && (s.seconds < costEvery || s.answered == 0) {
		return
	}
	mean := s.latency / s.answered
	switch {
	case r.cost == 0:
		r.cost = mean
	case mean < r.cost:
		r.cost += (mean - r.cost) / 4
	case calm:
		r.cost = min(mean, r.cost*(1+costRise*s.seconds))
	}
	s.answered, s.latency, s.seconds = 0, 0, 0
}

// share gives each route its part of the capacity, and reports whether parts are in force.
func (f *routes) share() bool {
	capacity, needs := 0.0, 0.0
	for _, r := range f.all {
		r.need = r.offered * r.cost
		needs += r.need
		capacity += r.answered * r.cost
	}
	capacity *= f.gain
	if f.refused < 0.5 || capacity == 0 || capacity >= needs {
		for _, r := range f.all {
			r.beyond.Store(0)
		}
		return false
	}
	part := fairPart(f.all, capacity)
	for _, r := range f.all {
		odds := odds{}
		if r.need > part {
			odds.set(1 - part/r.need)
		}
		r.beyond.Store(odds.of.Load())
	}
	return true
}

// fairPart returns the greatest need that is met in full, if all routes have the same right to the capacity.
func fairPart(all []*route, capacity float64) float64 {
	needs := make([]float64, 0, len(all))
	for _, r := range all {
		if r.need > 0 {
			needs = append(needs, r.need)
		}
	}
	slices.Sort(needs)
	for i, need := range needs {
		part := capacity / float64(len(needs)-i)
		if need >= part {
			return part
		}
		capacity -= need
	}
	return math.Inf(1)
}
