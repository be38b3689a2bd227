package level

import (
	"math"
	"sync/atomic"

	"github.com/spillway-go/spillway/internal/splitmix"
)

const (
	rows       = 3
	columnBits = 12
	columns    = 1 << columnBits
	part       = 8 // estimates are in 2^-part of a request

	recents    = 1 << 10 // requests that are remembered
	classAt    = rows * columnBits
	routeAt    = classAt + classBits
	routeBits  = 9
	weightAt   = routeAt + routeBits
	weightUnit = 512             // in an octave of the weight of a request
	weightOne  = 10 * weightUnit // weight 1

	timeBits    = 40
	timesOver   = 1 << 10 // requests of a key over which their time is averaged
	enoughTimes = 1024    // times from which on they are known
)

// A sketch estimates how many requests of each key came in a sliding window. An estimate may be too high, if the key
// collides with others in all rows, and is too low only by the error of the window. It takes 205 KB for any number of
// keys. All methods but turn are safe for concurrent use; turn may run while the others do.
type sketch struct {
	seed   uint64
	window atomic.Uint64 // the number of the current counts, 0 or 1, and 2 * the weight of the other ones, in 2^-part
	age    float64       // seconds since the current counts began; belongs to turn
	cells  [rows][columns]cell
	times  [rows][columns]atomic.Uint64 // number of times, and their mean in ns in the lower timeBits; see took
	known  atomic.Uint32                // number of times, up to enoughTimes

	next   atomic.Uint32
	recent [recents]atomic.Uint64 // the requests that were counted last, packed by note
}

// A cell holds two counts, the current and the previous one, side by side in one cache line.
type cell [2]atomic.Uint32

func newSketch(seed uint64) *sketch {
	k := &sketch{seed: splitmix.Mix(seed + splitmix.Gamma)}
	k.window.Store(1 << part << 1)
	return k
}

// place returns the places of a key of a class and a route in the rows, columnBits each.
func (k *sketch) place(class int, route uint64, key string) uint64 {
	return Position(key, k.seed+uint64(class)+route<<classBits)
}

// estimate returns the number of requests in the window of the key at a place.
func (k *sketch) estimate(at uint64) uint64 {
	least, window := ^uint64(0), k.window.Load()
	for r := range k.cells {
		least = min(least, k.cells[r][at>>(r*columnBits)%columns].value(window))
	}
	return least
}

func (c *cell) value(window uint64) uint64 {
	now := window & 1
	return uint64(c[now].Load())<<part + uint64(c[1-now].Load())*(window>>1)
}

// add counts n more requests of the key at a place. It raises only the counts that are too low for that, so keys that
// collide disturb each other little.
func (k *sketch) add(at, n uint64) {
	window := k.window.Load()
	want := k.estimate(at) + n<<part
	for r := range k.cells {
		c := &k.cells[r][at>>(r*columnBits)%columns]
		if have := c.value(window); have < want {
			c[window&1].Add(uint32((want - have + 1<<part - 1) >> part))
		}
	}
}

// took notes how many ns a request of the key at a place took while nothing was refused. In an overload, the waits hide
// the differences between keys.
func (k *sketch) took(at, ns uint64) {
	ns = min(max(ns, 1), 1<<timeBits-1)
	if n := k.known.Load(); n < enoughTimes {
		k.known.Store(n + 1) // about
	}
	for r := range k.times {
		c := &k.times[r][at>>(r*columnBits)%columns]
		old := c.Load()
		n, mean := min(old>>timeBits+1, timesOver), int64(old&(1<<timeBits-1))
		mean += (int64(ns) - mean) / int64(n)
		c.CompareAndSwap(old, n<<timeBits|uint64(max(mean, 1))) // one of two at the same instant will do
	}
}

// time returns how many ns requests of the key at a place take: the median of its rows. It is 0 if unknown.
func (k *sketch) time(at uint64) uint64 {
	a := k.times[0][at%columns].Load() & (1<<timeBits - 1)
	b := k.times[1][at>>columnBits%columns].Load() & (1<<timeBits - 1)
	c := k.times[2][at>>(2*columnBits)%columns].Load() & (1<<timeBits - 1)
	return max(min(a, b), min(max(a, b), c))
}

// note remembers a request of a class and a route with a key at a place. A key of weight 2 counts as if it sent half as
// much.
func (k *sketch) note(class int, route, at uint64, weight float64) {
	w := uint64(weightOne)
	if weight != 1 {
		w = uint64(min(max(weightOne+weightUnit*math.Log2(weight)+0.5, 1), 2*weightOne))
	}
	k.recent[k.next.Add(1)%recents].Store(at&(1<<classAt-1) | uint64(class)<<classAt | route<<routeAt | w<<weightAt)
}

// read sets r to the present rates of the keys of the remembered requests of a class and a route.
func (k *sketch) read(class int, route uint64, r *rates) {
	*r = rates{ready: k.known.Load() >= enoughTimes}
	for i := range k.recent {
		if n := k.recent[i].Load(); n>>classAt&(1<<(classBits+routeBits)-1) == uint64(class)|route<<classBits && n != 0 {
			rate := float64(k.estimate(n)) / (1 << part)
			if w := n >> weightAt; w != weightOne {
				rate *= math.Exp2(float64(weightOne-int64(w)) / weightUnit)
			}
			r.add(rate, float64(k.time(n)))
		}
	}
}

// samples returns how many remembered requests of a class each route has.
func (k *sketch) samples(class int, of *[mostRoutes + 1]int) {
	*of = [mostRoutes + 1]int{}
	for i := range k.recent {
		if n := k.recent[i].Load(); n != 0 && int(n>>classAt&classMask) == class {
			of[n>>routeAt&(1<<routeBits-1)%uint64(len(of))]++
		}
	}
}

// turn moves the window of the given length on by dt seconds.
func (k *sketch) turn(dt, length float64) {
	now := k.window.Load() & 1
	k.age += dt
	if !(k.age < 2*length) { // nothing of the previous counts is left, nor of the current ones
		k.clear(1 - now)
		k.age = 0
		k.window.Store(1 - now) // the other counts have no weight until they are cleared
		k.clear(now)
		for i := range k.recent {
			k.recent[i].Store(0)
		}
	} else if k.age >= length {
		k.age -= length
		now = 1 - now
		k.clear(now)
	}
	k.window.Store(now | uint64((1-k.age/length)*(1<<part))<<1)
}

func (k *sketch) clear(counts uint64) {
	for r := range k.cells {
		for i := range k.cells[r] {
			k.cells[r][i][counts].Store(0)
		}
	}
}
