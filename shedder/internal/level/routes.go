package level

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
)

const (
	mostRoutes   = 256     // routes that have a share of their own
	longestRoute = 256     // bytes of the name of such a route
	mostTokens   = 1 << 20 // greatest cost of a request that counts
	guess        = 1e6     // ns that a request counts while no cost is known at all
	unsure       = 0.1     // share of the busy time of unknown cost, above which routes do not decide

	batch    = 16   // successes whose mean has a vote about a cost
	votes    = 15   // the median of so many decides, of fewer at the beginning
	costFall = 0.25 // part of the way to a lower mean
	mixSpan  = 10.0 // seconds over which the busy time of a calm request is averaged
	leastMix = 0.02
	costRise = 2e-3 // rise of a cost in a calm second at most, so that a queue of a short time does not become the cost
)

// A route is a kind of request. It has a share of the busy time of its class, and its keys share that.
type route struct {
	number uint64 // makes its keys other ones than those of other routes
	price  price
	work   Histogram // busy time in ns that its requests ask for
	keys   line      // requests of the class at the mark that are not behind
	stays  line      // requests of the class dropAt that are not dropped
	over   atomic.Bool

	plan routePlan // belongs to Step
}

// A routePlan says which requests of a route pass.
type routePlan struct {
	need  float64 // share of the busy time of the class at hand
	keys  cut
	stays cut
	fits  float64 // requests per window up to which its keys rank above; 0 if none do, +Inf if all do
	over  bool    // a smaller part of it passes than of its class
}

// A price is the time in ns that one request or one token takes in a calm service: a low mean of successes. Waits in a
// queue are left out if the service is without a queue now and then.
type price struct {
	ns   atomic.Uint64 // 0 until it is known
	took atomic.Uint64 // successes since the last tick in the lower bits, the sum of their times above

	// The rest belongs to Step.
	n, sum  float64 // of the batch that is being taken
	age     float64 // seconds since the last estimate
	batches int
	means   [votes]float64 // of the batches since the last estimate
	sure    bool           // there was an estimate by all votes
}

const (
	tookBits = 20 // of price.took, for the number of successes
	tookUnit = 64 // ns
)

func (p *price) add(ns uint64) { p.took.Add(ns/tookUnit<<tookBits + 1) }

// step takes in the successes of a tick of dt seconds.
func (p *price) step(dt float64, calm bool) {
	if p.took.Load() != 0 {
		word := p.took.Swap(0)
		p.n += float64(word & (1<<tookBits - 1))
		p.sum += float64(word>>tookBits) * tookUnit
	}
	if !calm {
		p.n, p.sum, p.age, p.batches = 0, 0, 0, 0
		return
	}
	p.age += dt
	if p.n < batch {
		return
	}
	p.means[p.batches] = max(p.sum/p.n, tookUnit)
	p.n, p.sum = 0, 0
	p.batches++
	if p.sure && p.batches < votes {
		return
	}
	sorted := p.means
	slices.Sort(sorted[:p.batches])
	mean, old := sorted[p.batches/2], float64(p.ns.Load())
	switch {
	case !p.sure:
		old = mean
	case mean < old:
		old += (mean - old) * costFall
	default:
		old = min(mean, old*(1+costRise*p.age))
	}
	p.ns.Store(uint64(old))
	if p.batches == votes {
		p.sure, p.age, p.batches = true, 0, 0
	}
}

func newRoute(number uint64) *route {
	r := &route{number: number}
	r.set(&routePlan{keys: all(), stays: all()}, 0)
	return r
}

// routes share the busy time of a class. The busy time of a request is its cost times the time of a token, or the time
// that requests of its route take in a calm service. All methods but step and divide are safe for concurrent use.
type routes struct {
	known   atomic.Pointer[map[string]*route]
	rest    *route // requests of no route, and of all routes beyond mostRoutes
	shared  bool   // false if rest is all there is, and nothing is counted here
	token   price
	typical atomic.Uint64 // ns of a request of unknown cost
	unknown atomic.Uint64 // ns of such requests since the last step
	left    atomic.Uint64 // ns of the requests that ended
	turned  atomic.Uint64 // ns of the requests that were refused
	mu      sync.Mutex    // held to add a route

	// The rest belongs to step.
	all        []*route
	total      Histogram
	offered    float64                   // busy time over about the last span
	ended      float64                   // the same of requests that ended
	refused    float64                   // the same of requests that were refused
	now        float64                   // ended in the last tick
	guessed    bool                      // many costs of the last tick are guesses
	uncertain  float64                   // share of total that is of unknown cost, times total
	decide     bool                      // the last plan lets some routes pass before others
	level      float64                   // busy time per second above which a route is cut
	calm       struct{ busy, n float64 } // of the requests that ended while none was refused
	mix        float64                   // busy time of a request that ends, as a multiple of that in calm
	refusedMix float64                   // the same of a refused request, as a multiple of one that ends
	needs      []float64
}

func newRoutes() *routes {
	rest := newRoute(0)
	f := &routes{rest: rest, shared: true, all: []*route{rest}, mix: 1, refusedMix: 1}
	f.known.Store(&map[string]*route{})
	f.typical.Store(guess)
	return f
}

// of returns the route of a request.
func (f *routes) of(name string) *route {
	if r := (*f.known.Load())[name]; r != nil {
		return r
	}
	return f.rest
}

// busy returns the busy time of a request in ns, and whether that is more than a guess.
func (f *routes) busy(r *route, cost int) (ns uint64, known bool) {
	tokens := uint64(min(max(cost, 1), mostTokens))
	if cost > 0 {
		ns = f.token.ns.Load()
	} else {
		ns = r.price.ns.Load()
	}
	if known = ns != 0; !known {
		ns = f.typical.Load()
	}
	return min(ns*tokens, 1<<timeBits), known
}

// ask counts a request that arrives.
func (f *routes) ask(r *route, class, place, cost int) {
	ns, known := f.busy(r, cost)
	r.work.add(class, place, ns)
	if !known {
		f.unknown.Add(ns)
	}
}

// done counts a request that has ended. Successes teach their time.
func (f *routes) done(r *route, q *spillway.Request, res *spillway.Result) {
	ns, _ := f.busy(r, q.Cost)
	f.left.Add(ns)
	if res.Outcome != spillway.Success {
		return
	}
	took := uint64(max(res.Latency, 0))
	took = min(took, 1<<timeBits)
	if r == f.rest && q.Route != "" && len(q.Route) <= longestRoute && len(*f.known.Load()) < mostRoutes {
		r = f.enter(q.Route)
	}
	if q.Cost > 0 {
		f.token.add(took / uint64(min(q.Cost, mostTokens)))
		return
	}
	r.price.add(took)
}

// enter adds a route.
func (f *routes) enter(name string) *route {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := *f.known.Load()
	if r := old[name]; r != nil {
		return r
	}
	if len(old) >= mostRoutes {
		return f.rest
	}
	next := make(map[string]*route, len(old)+1)
	maps.Copy(next, old)
	r := newRoute(uint64(len(next) + 1))
	next[strings.Clone(name)] = r
	f.known.Store(&next)
	return r
}

// step takes in a tick. Keep and keepWork are the parts of the rates and of the masses that remain.
func (f *routes) step(dt, keep, keepWork, weight, requests float64, calm bool) {
	if known := *f.known.Load(); len(known)+1 != len(f.all) {
		f.all = append(slices.AppendSeq(f.all[:0], maps.Values(known)), f.rest)
		slices.SortFunc(f.all, func(a, b *route) int { return int(a.number) - int(b.number) }) // sums repeat to the bit
	}
	f.token.step(dt, calm)
	f.total = Histogram{}
	fresh := 0.0
	for _, r := range f.all {
		r.price.step(dt, calm)
		r.work.fold(keepWork, weight)
		for c, mass := range r.work.class {
			f.total.class[c] += mass
			f.total.mass[c][keyed] += r.work.mass[c][keyed]
			f.total.mass[c][keyless] += r.work.mass[c][keyless]
			fresh += r.work.fresh[c]
		}
		f.total.all += r.work.all
	}
	f.offered = f.offered*keep + fresh
	f.refused = f.refused*keep + weight*float64(f.turned.Swap(0))
	ended := weight * float64(f.left.Swap(0))
	f.ended = f.ended*keep + ended
	unknown := weight * float64(f.unknown.Swap(0))
	f.uncertain = f.uncertain*keepWork + unknown
	f.now, f.guessed = ended, unknown > unsure*fresh
	if requests > 0 && f.total.all > 0 {
		f.typical.Store(uint64(max(f.total.all/requests, 1)))
	}
}

// mixed compares the requests that end with those that ended while none was refused, and with the refused ones. N of them
// have ended in this tick of dt seconds; left and refused are the numbers of about the last span.
func (f *routes) mixed(dt, n, left, refused float64) {
	f.mix, f.refusedMix = 1, 1
	c := &f.calm
	if refused < 0.5 {
		keep := math.Exp(-dt / mixSpan)
		c.busy, c.n = c.busy*keep+f.now, c.n*keep+n
		if f.guessed {
			c.busy, c.n = 0, 0
		}
		return
	}
	if !f.decide || c.n < few || left < few || f.ended == 0 {
		return
	}
	f.mix = min(max(f.ended/left*c.n/c.busy, leastMix), 1)
	f.refusedMix = min(max(f.refused/refused*left/f.ended, leastMix), 1/leastMix)
}

// divide sets the need of each route, its share of the busy time of a class. It reports whether routes decide.
func (f *routes) divide(class int) bool {
	if len(f.all) == 1 {
		f.rest.plan.need = 1
		return false
	}
	for _, r := range f.all {
		r.plan.need = r.work.class[class] / max(f.total.class[class], 1e-12)
	}
	return f.uncertain <= unsure*f.total.all
}

// fill returns the need up to which routes are served in full, if a part of all needs passes (max-min fairness).
func (f *routes) fill(pass float64) float64 {
	if pass >= 1 {
		return math.Inf(1)
	}
	f.needs = f.needs[:0]
	for _, r := range f.all {
		if r.plan.need > 0 {
			f.needs = append(f.needs, r.plan.need)
		}
	}
	slices.Sort(f.needs)
	for i, need := range f.needs {
		if even := pass / float64(len(f.needs)-i); need >= even {
			return max(even, 0)
		}
		pass -= need
	}
	return math.Inf(1)
}

// set makes a plan the one by which requests are judged. Floor is the number of requests per window up to which a key is
// light.
func (r *route) set(p *routePlan, floor float64) {
	r.keys.set(p.keys, p.fits, floor)
	r.stays.set(p.stays, 0, floor)
	r.over.Store(p.over)
}

// keyed returns the part of the requests of a route in a class that have a key.
func (f *routes) keyed(h *Histogram, r *route, class int) float64 {
	if f.shared {
		h = &r.work
	}
	return h.keys(class)
}

// cost returns how long a request of a route takes in a calm service, or 0 if that is unknown.
func (f *routes) cost(name string) time.Duration {
	r := f.of(name)
	if r == f.rest && name != "" {
		return 0
	}
	return time.Duration(r.price.ns.Load())
}
