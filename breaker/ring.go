package breaker

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/stripe"
)

// maxStripes bounds the copies of a ring: with more, memory and the cost of a sum grow for little gain.
const maxStripes = 8

// An instant is a time in ns since a policy's base, the time of its first call. It stays clear of the ends of its
// range, so that an instant plus a duration from the options does not overflow.
type instant int64

const (
	never   instant = 1<<63 - 1 // later than all instants
	longAgo instant = -1 << 63  // before all instants
	maxSpan         = 1 << 61   // 73 years
)

// after returns the instant d after i, within the range of instants.
func (i instant) after(d time.Duration) instant {
	return min(i+instant(min(d, maxSpan)), maxSpan)
}

// A base turns times into instants.
type base struct{ time atomic.Pointer[time.Time] }

// instant returns t as an instant. The first t is the base. If both times have a monotonic reading, that reading
// decides.
func (b *base) instant(t time.Time) instant {
	at := b.time.Load()
	if at == nil {
		at = b.anchor(t)
	}
	return instant(min(max(t.Sub(*at), -maxSpan), maxSpan))
}

func (b *base) anchor(t time.Time) *time.Time {
	if b.time.CompareAndSwap(nil, &t) {
		return &t
	}
	return b.time.Load()
}

// at returns i as a time, or the zero time if no request has come yet or i is not an instant.
func (b *base) at(i instant) time.Time {
	at := b.time.Load()
	if at == nil || i == never || i == longAgo {
		return time.Time{}
	}
	return at.Add(time.Duration(i))
}

// A ring counts calls by slots of time: calls in flight in the slot in which they began, and outcomes in the slot in
// which they arrived. Slot k holds the instants in ((k-shift-1)·span, (k-shift)·span]: because the end is included, a
// slot is older than a threshold exactly when all calls that began in it are. Winding the ring back adds to shift, so
// the number of the newest slot only grows. A number stands for one slot forever, and a call that ends is subtracted
// where it was counted.
//
// Each stripe has its own cells. The figures of a single stripe mean nothing, because a call may begin on one stripe
// and end on another. Slots that leave the ring are cleared under the lock before they are used again, and calls still
// in flight from them are moved to older. A call that ends at that very moment is subtracted from one of the two. Their
// sum is right at once, and each of them is right when the slot next leaves the ring.
type ring struct {
	span    instant
	buckets int64 // of the window
	size    int64 // a power of two, at least the number of slots ever asked for
	stripes int
	cells   []cell // [stripe][slot modulo size]

	newest atomic.Int64 // slot
	shift  atomic.Int64 // slots
	_      [stripe.Size - 16]byte
	older  atomic.Int64 // in flight since before the ring
	mu     sync.Mutex   // taken to change newest and shift
	late   lateCount    // guarded by mu
}

// A cell counts in one stripe and slot. Every call writes one word: successes in the lower 40 bits, calls in flight
// above them. Both are read only from the sum over the stripes, where carries between them cancel out.
type cell struct {
	word     atomic.Uint64
	failures atomic.Int64
	slow     atomic.Int64
	ignored  atomic.Int64
}

const (
	inFlightShift = 40
	oneInFlight   = 1 << inFlightShift
	successMask   = oneInFlight - 1
	quickSuccess  = 1<<64 - oneInFlight + 1 // one success more, and one in flight less
)

// newRing returns a ring over window with the given number of buckets. It knows the
// age of calls in flight up to hang.
func newRing(window time.Duration, buckets int, hang time.Duration) *ring {
	span := instant(window) / instant(buckets)
	// A call counts as hanging for a window from the age of hang on, and one may tune hang up to a window.
	size := 2*buckets + int(max(instant(window), instant(hang))/span) + 2
	g := &ring{
		span:    span,
		buckets: int64(buckets),
		size:    1 << bits.Len(uint(size-1)),
		stripes: min(stripe.Count(), maxStripes),
	}
	g.cells = make([]cell, int64(g.stripes)*g.size)
	return g
}

// slot returns the slot of i and moves the ring on if it is new.
func (g *ring) slot(i instant) int64 {
	newest := g.newest.Load()
	if into := i - g.end(newest-1); 0 < into && into <= g.span {
		return newest
	}
	slot := g.slotOf(i)
	if slot > newest {
		g.moveTo(slot)
	}
	return slot
}

// slotOf returns the slot of i, which is i / span rounded up, and the shift.
func (g *ring) slotOf(i instant) int64 {
	slot := int64(i/g.span) + g.shift.Load()
	if i%g.span > 0 {
		slot++
	}
	return slot
}

// end returns the last instant in slot.
func (g *ring) end(slot int64) instant { return instant(slot-g.shift.Load()) * g.span }

// holds reports whether slot has cells. It may be negative, but must not be too old or in the future.
func (g *ring) holds(slot int64) bool {
	newest := g.newest.Load()
	return slot > newest-g.size && slot <= newest
}

// cell returns the caller's cell of a slot that the ring holds.
func (g *ring) cell(slot int64) *cell {
	return &g.cells[int64(stripe.Index(g.stripes))*g.size+slot&(g.size-1)]
}

// begin counts a call in flight since i and returns its slot.
func (g *ring) begin(i instant) int64 {
	newest := g.newest.Load()
	if into := i - g.end(newest-1); 0 < into && into <= g.span {
		g.cell(newest).word.Add(oneInFlight)
		return newest
	}
	slot := g.slot(i)
	g.addInFlight(slot, 1)
	return slot
}

// succeed ends a quick success at i if it began in the slot in which it ends, whose lower bits are low, and reports
// whether it did. This is begin and succeed for nearly all calls: two additions.
func (g *ring) succeed(i instant, low uint32) bool {
	newest := g.newest.Load()
	into := i - g.end(newest-1)
	if into <= 0 || into > g.span || uint32(newest) != low {
		return false
	}
	g.cell(newest).word.Add(quickSuccess)
	return true
}

// finish stops counting a call that began in slot.
func (g *ring) finish(slot int64) { g.addInFlight(slot, -1) }

func (g *ring) addInFlight(slot, n int64) {
	if g.holds(slot) {
		g.cell(slot).word.Add(uint64(n) << inFlightShift)
		return
	}
	g.older.Add(n)
}

// add counts one outcome in slot, and reports whether the ring was wound back for it. An outcome from before the window
// counts in the newest slot.
func (g *ring) add(slot int64, v verdict) (rewound bool) {
	if slot <= g.newest.Load()-g.buckets {
		slot, rewound = g.addLate(slot)
	}
	if !g.holds(slot) {
		return rewound // it has moved on since
	}
	c := g.cell(slot)
	switch {
	case v&ignored != 0:
		c.ignored.Add(1)
		return rewound
	case v&failed != 0:
		c.failures.Add(1)
	default:
		c.word.Add(1)
	}
	if v&slow != 0 {
		c.slow.Add(1)
	}
	return rewound
}

// A lateCount counts the outcomes from before the window since the ring last moved on.
type lateCount struct{ newest, n int64 }

// rewindAfter is how many outcomes from before the window it takes to doubt the newest slot. Otherwise one call with a
// time far in the future would stop the window until that time.
const rewindAfter = 8

// addLate returns the slot where an outcome from before the window counts: the newest. If nearly all outcomes there
// came from before the window, the newest slot must have a wrong time, and the ring is wound back. Then it forgets all
// outcomes, moves calls in flight to older, and makes slot the newest under another number.
func (g *ring) addLate(slot int64) (at int64, rewound bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	newest := g.newest.Load()
	if g.late.newest != newest {
		g.late = lateCount{newest: newest}
	}
	g.late.n++
	c := g.sum(g.end(newest))
	if g.late.n < rewindAfter || 4*g.late.n < 3*(c.successes+c.failures+c.ignored) {
		return newest, false
	}
	g.shift.Add(newest + g.size - slot)
	g.advance(newest + g.size)
	return newest + g.size, true
}

// A verdict is an outcome as the ring and the count window store it. The zero verdict is a quick success.
type verdict uint8

const (
	failed verdict = 1 << iota
	slow
	ignored
)

// moveTo makes slot the newest.
func (g *ring) moveTo(slot int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance(slot)
}

// advance is like moveTo. The caller holds mu.
func (g *ring) advance(slot int64) {
	newest := g.newest.Load()
	for s := max(newest, slot-g.size) + 1; s <= slot; s++ {
		g.clearSlot(s)
	}
	if slot > newest {
		g.newest.Store(slot)
	}
}

// clearSlot empties the cells of slot before its first use.
func (g *ring) clearSlot(slot int64) {
	var sum uint64
	for s := range g.stripes {
		c := &g.cells[int64(s)*g.size+slot&(g.size-1)]
		sum += c.word.Swap(0)
		c.failures.Store(0)
		c.slow.Store(0)
		c.ignored.Store(0)
	}
	g.older.Add(int64(sum) >> inFlightShift)
}

// forget removes all outcomes from the ring and leaves the calls in flight. An outcome added meanwhile may stay.
func (g *ring) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k := range g.size {
		var sum uint64
		for s := range g.stripes {
			c := &g.cells[int64(s)*g.size+k]
			sum += c.word.Load()
			c.failures.Store(0)
			c.slow.Store(0)
			c.ignored.Store(0)
		}
		g.cells[k].word.Add(-(sum & successMask))
	}
}

// sum returns the outcomes of the window that ends with the slot of i, or with the newest if that is later.
func (g *ring) sum(i instant) (c counts) {
	newest := g.newest.Load()
	last := max(g.slotOf(i), newest)
	for slot := last - g.buckets + 1; slot <= newest; slot++ {
		var words uint64
		for s := range g.stripes {
			cell := &g.cells[int64(s)*g.size+slot&(g.size-1)]
			words += cell.word.Load()
			c.failures += cell.failures.Load()
			c.slow += cell.slow.Load()
			c.ignored += cell.ignored.Load()
		}
		c.successes += int64(words & successMask)
	}
	return c
}

// inFlight returns how many calls began in the slots first to last, if the ring still holds them, and have not ended.
func (g *ring) inFlight(first, last int64) (n int64) {
	newest := g.newest.Load()
	for slot := max(first, newest-g.size+1); slot <= min(last, newest); slot++ {
		var words uint64
		for s := range g.stripes {
			words += g.cells[int64(s)*g.size+slot&(g.size-1)].word.Load()
		}
		n += int64(words) >> inFlightShift
	}
	return n
}

// allInFlight returns how many calls have not ended.
func (g *ring) allInFlight() int64 {
	return g.older.Load() + g.inFlight(-1<<62, 1<<62)
}
