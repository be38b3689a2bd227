package breaker

import "sync/atomic"

// A callWindow counts the last outcomes, however old. Outcomes take places in turn, and each one subtracts the outcome
// that it replaces from the totals. So the totals are exact, without a lock, whenever no call is running.
type callWindow struct {
	next   atomic.Uint64
	places []atomic.Uint32 // taken, and the verdict

	total, failures, slow atomic.Int64
}

const taken = 1 << 8

func (w *callWindow) add(v verdict) {
	if v&ignored != 0 {
		return
	}
	i := (w.next.Add(1) - 1) % uint64(len(w.places))
	old := w.places[i].Swap(taken | uint32(v))
	if old == taken|uint32(v) {
		return
	}
	if old == 0 {
		w.total.Add(1)
	}
	w.count(&w.failures, failed, old, v)
	w.count(&w.slow, slow, old, v)
}

func (w *callWindow) count(n *atomic.Int64, bit verdict, old uint32, v verdict) {
	if was, is := int64(verdict(old)&bit), int64(v&bit); was != is {
		n.Add((is - was) / int64(bit))
	}
}

func (w *callWindow) sum() counts {
	c := counts{failures: w.failures.Load(), slow: w.slow.Load()}
	c.successes = max(w.total.Load()-c.failures, 0)
	return c
}
