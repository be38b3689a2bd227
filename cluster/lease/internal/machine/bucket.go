package machine

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// tickBits is the resolution of a Bucket: 2^5 = 32 ticks per ns. So a rate of 10 million a second is exact to 1 in
// 3000, and a Bucket works for 9 years.
const tickBits = 5

// maxTicks bounds intervals and the theoretical arrival time, so that sums do not overflow.
const maxTicks = 1 << 61

// A Bucket decides locally. It is the Generic Cell Rate Algorithm (ITU-T I.371) on one word, under terms that change
// while it runs. The terms say themselves when they end and which terms follow, so a lease ends on time without any
// action. Take may be called concurrently, with itself and with the setter; there is one setter at a time.
type Bucket struct {
	terms atomic.Pointer[Terms]
	_     [56]byte     // tat is written by every decision, terms are read
	tat   atomic.Int64 // theoretical arrival time, in ticks
	_     [56]byte
}

// Terms are the rate and the burst of a Bucket until a moment. They are immutable.
type Terms struct {
	Rate   float64       // tokens per second
	Until  time.Duration // when Next begins
	Next   *Terms        // nil if these hold forever
	From   Source
	ticks  int64   // between two tokens; 0 if there are none
	slack  int64   // ticks: how far ahead of time the bucket may be before it takes another token
	debt   float64 // tokens owed when terms without a rate began; not positive
	always bool
}

// Forever is an Until that never comes.
const Forever = time.Duration(math.MaxInt64)

// newTerms returns terms for a rate. The burst is proportional to the rate: slack is the same for all nodes. A node may
// also be one request in debt. This allows a request that costs more than its share of the burst.
func newTerms(c *Config, rate float64, until time.Duration, from Source, next *Terms) *Terms {
	t := &Terms{Rate: rate, Until: until, From: from, Next: next, always: from == FromOpen}
	if rate > 0 {
		if ticks := math.Ceil(1e9 * (1 << tickBits) / rate); ticks < maxTicks/4 {
			t.ticks = int64(ticks)
		}
		t.slack = int64(min(c.Burst/c.Rate*1e9*(1<<tickBits), maxTicks/4))
	}
	return t
}

// Terms returns the terms in force at now.
func (b *Bucket) Terms(now time.Duration) *Terms {
	t := b.terms.Load()
	for now >= t.Until && t.Next != nil {
		t = t.Next
	}
	return t
}

// Take takes n tokens, at least 1, at now. If there are not enough, it returns how long it takes until there are, or a
// negative wait if that is unknown. It does not allocate.
func (b *Bucket) Take(now time.Duration, n int64) (ok bool, wait time.Duration, from Source) {
	at := int64(now) << tickBits
	for {
		t := b.Terms(now)
		if t.always {
			return true, 0, t.From
		}
		if t.ticks == 0 {
			return false, -1, t.From
		}
		tat := b.tat.Load()
		ahead := max(tat-at, 0)
		if ahead > t.slack {
			return false, time.Duration((ahead-t.slack)>>tickBits) + 1, t.From
		}
		hi, cost := bits.Mul64(uint64(n), uint64(t.ticks))
		if hi != 0 || cost > maxTicks/2 {
			return false, -1, t.From
		}
		if b.tat.CompareAndSwap(tat, at+ahead+int64(cost)) {
			return true, 0, t.From
		}
	}
}

// GiveBack returns n tokens that were taken. There are never more than the burst.
func (b *Bucket) GiveBack(now time.Duration, n int64) {
	if t := b.Terms(now); t.ticks > 0 && n <= maxTicks/2/t.ticks {
		b.tat.Add(-n * t.ticks)
	}
}

// Tokens returns how many tokens there are at now. The number is negative if the bucket is in debt.
func (b *Bucket) Tokens(now time.Duration) float64 { return b.tokens(b.Terms(now), now) }

func (b *Bucket) tokens(t *Terms, now time.Duration) float64 {
	if t.ticks == 0 {
		return t.debt
	}
	ahead := max(b.tat.Load()-int64(now)<<tickBits, 0)
	return float64(t.slack+t.ticks-ahead) / float64(t.ticks)
}

// set puts new terms in force at now. The tokens stay, as far as there is room for them, and gift is added. So a rate that
// moves between nodes creates no tokens.
func (b *Bucket) set(now time.Duration, t *Terms, gift float64) {
	first := t
	for now >= first.Until && first.Next != nil {
		first = first.Next
	}
	if first.ticks == 0 {
		if old := b.terms.Load(); old != nil {
			first.debt = min(b.tokens(b.Terms(now), now), 0)
		}
		b.terms.Store(t)
		return
	}
	for {
		tat := b.tat.Load()
		tokens := gift
		if old := b.terms.Load(); old != nil {
			tokens += b.tokens(b.Terms(now), now)
		}
		ahead := float64(first.slack) + float64(first.ticks)*(1-tokens)
		next := int64(now)<<tickBits + int64(min(max(math.Ceil(ahead), 0), maxTicks/2))
		if b.tat.CompareAndSwap(tat, next) {
			b.terms.Store(t)
			return
		}
	}
}
