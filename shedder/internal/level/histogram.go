package level

import "sync/atomic"

// The places of a class.
const (
	keyed = iota
	keyless
	places
)

// A Histogram counts requests, or their busy time, by their class, with a key and without. The zero Histogram is empty. Add
// is safe for concurrent use.
type Histogram struct {
	counts [Classes][places]atomic.Uint64
	seen   atomic.Uint32 // the classes counted since the last fold, a bit each

	// The rest belongs to fold: what remains of the counts of all earlier times.
	mass  [Classes][places]float64
	class [Classes]float64 // sums of mass
	all   float64
	fresh [Classes]float64 // what the last fold added
}

// Add counts a request with a key.
func (h *Histogram) Add(class int) { h.add(class, keyed, 1) }

// AddKeyless counts a request without a key.
func (h *Histogram) AddKeyless(class int) { h.add(class, keyless, 1) }

func (h *Histogram) add(class, place int, n uint64) {
	h.counts[class][place].Add(n)
	if bit := uint32(1) << class; h.seen.Load()&bit == 0 {
		h.seen.Or(bit)
	}
}

// forget is the share of all requests below which a class counts as gone.
const forget = 1e-4

// fold multiplies all counts by keep and adds the new ones, each as weight requests.
func (h *Histogram) fold(keep, weight float64) {
	seen := h.seen.Swap(0)
	if seen == 0 && h.all == 0 {
		h.fresh = [Classes]float64{}
		return
	}
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

// keys returns the part of the requests of a class that have a key.
func (h *Histogram) keys(class int) float64 { return h.mass[class][keyed] / max(h.class[class], 1e-12) }
