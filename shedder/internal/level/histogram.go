package level

import "sync/atomic"

const (
	cohortBits = 6               // of a position
	cohorts    = 1 << cohortBits // keys of a class with equal cohortBits are counted together
	keyless    = cohorts         // the place of requests without a key
	places     = cohorts + 1
)

// A Histogram counts the levels of requests. The zero Histogram is empty. Add is safe for concurrent use.
type Histogram struct {
	counts [Classes][places]atomic.Uint32
	seen   atomic.Uint32 // the classes counted since the last fold, a bit each

	// The rest belongs to fold: what remains of the counts of all earlier times.
	mass  [Classes][places]float64
	class [Classes]float64 // sums of mass
	all   float64
	fresh [Classes]float64 // what the last fold added
}

// Add counts a request with a key.
func (h *Histogram) Add(class int, position uint64) { h.add(class, int(position>>(64-cohortBits))) }

// AddKeyless counts a request without one.
func (h *Histogram) AddKeyless(class int) { h.add(class, keyless) }

func (h *Histogram) add(class, place int) {
	h.counts[class][place].Add(1)
	if bit := uint32(1) << class; h.seen.Load()&bit == 0 {
		h.seen.Or(bit)
	}
}

// forget is the share of all requests below which a class counts as gone.
const forget = 1e-4

// fold multiplies all counts by keep and adds the new ones, each as weight requests.
func (h *Histogram) fold(keep, weight float64) {
	seen := h.seen.Swap(0)
	h.all = 0
	for c := range h.class {
		h.fresh[c] = 0
		if seen>>c&1 == 0 && h.class[c] == 0 {
			continue
		}
		sum := 0.0
		for i := range h.mass[c] {
			m := h.mass[c][i] * keep
			if seen>>c&1 != 0 && h.counts[c][i].Load() != 0 {
				n := weight * float64(h.counts[c][i].Swap(0))
				h.fresh[c] += n
				m += n
			}
			h.mass[c][i] = m
			sum += m
		}
		h.class[c] = sum
		h.all += sum
	}
	for c, mass := range h.class {
		if mass > 0 && mass < forget*h.all || mass < 1e-9 {
			h.all -= mass
			h.class[c], h.mass[c] = 0, [places]float64{}
		}
	}
}

// share returns the share of a class of all requests.
func (h *Histogram) share(class int) float64 { return h.class[class] / max(h.all, 1e-12) }

const (
	heavy   = 0.125 // share of a class in one cohort, from which its keys do not decide
	leastBy = 0.05  // share of a class with a key, below which keys do not decide
)

// byKey reports whether keys decide inside a class. They do not if next to no request has one, and not if a single key
// sends so much that it would take the places of all keys with lower positions.
func (h *Histogram) byKey(class int) bool {
	m := &h.mass[class]
	if h.class[class]-m[keyless] < leastBy*h.class[class] {
		return false
	}
	for _, n := range m[:cohorts] {
		if n > heavy*h.class[class] {
			return false
		}
	}
	return true
}

// quantile returns the position in a class below which the given share of its requests is. Requests without a key are
// everywhere.
func (h *Histogram) quantile(class int, share float64) uint64 {
	if !(share > 0) {
		return 0
	}
	m := &h.mass[class]
	left, spread := share*h.class[class], m[keyless]/cohorts
	for i, n := range m[:cohorts] {
		n += spread
		if left < n {
			return uint64((float64(i)+left/n)/cohorts*(1<<63)) << 1
		}
		left -= n
	}
	return 1<<64 - 1
}
