package exact

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/limiter"
)

// ways is how many keys share one place of a memory, so that few displace each other.
const ways = 4

// A memory caches the last answers of Redis for a bounded number of keys. A cached refusal is exact until the time that
// Redis named, since tokens cannot return sooner unless some are given back. It takes no lock.
type memory struct {
	seed   maphash.Seed
	places []place // their number is a power of two
}

type place struct {
	changed atomic.Uint32 // counts forgotten answers, so that an earlier answer is not remembered later
	answers [ways]atomic.Pointer[answer]
}

// An answer is immutable.
type answer struct {
	key    string
	rule   int             // the rule that decided
	states []limiter.State // of all rules
	asked  time.Time       // before the call was sent
	cost   int64           // the smallest refused cost; 0 if none was refused
	opens  time.Time       // when the cost will be available, as far as Redis knew
	until  time.Time       // until when the answer is used
}

func newMemory(keys int) *memory {
	n := 1
	for n*ways < keys {
		n *= 2
	}
	return &memory{seed: maphash.MakeSeed(), places: make([]place, n)}
}

func (m *memory) place(key string) *place {
	return &m.places[maphash.String(m.seed, key)&uint64(len(m.places)-1)]
}

// recall returns the last answer for a key, or nil.
func (m *memory) recall(key string) *answer {
	key = call.ShortKey(key)
	p := m.place(key)
	for i := range p.answers {
		if a := p.answers[i].Load(); a != nil && a.key == key {
			return a
		}
	}
	return nil
}

// refuses reports whether the answer says that n tokens are not available at now.
func (a *answer) refuses(n int64, now time.Time) bool {
	return a != nil && a.cost > 0 && n >= a.cost && now.Before(a.until)
}

// stateAt returns the known state of a rule at now, without a call.
func (a *answer) stateAt(now time.Time, rule int) limiter.State {
	s := a.states[rule]
	age := now.Sub(a.asked)
	if age >= s.FullIn {
		return limiter.State{Limit: s.Limit, Remaining: s.Limit}
	}
	s.NextIn, s.FullIn = max(s.NextIn-age, 0), s.FullIn-age
	return s
}

// version returns the version that remember needs; call it before the call of Redis.
func (m *memory) version(key string) uint32 { return m.place(call.ShortKey(key)).changed.Load() }

// remember keeps an answer, unless an answer was forgotten since version was read. It displaces the least useful
// answer: one that no longer refuses anything, or the oldest.
func (m *memory) remember(a *answer, version uint32) {
	a.key = call.ShortKey(a.key)
	p := m.place(a.key)
	victim, worth := 0, time.Time{}
	for i := range p.answers {
		b := p.answers[i].Load()
		if b == nil || b.key == a.key {
			victim = i
			break
		}
		useful := b.asked
		if b.until.After(useful) {
			useful = b.until
		}
		if i == 0 || useful.Before(worth) {
			victim, worth = i, useful
		}
	}
	if p.changed.Load() == version {
		p.answers[victim].Store(a)
	}
}

// forgetAll drops all answers.
func (m *memory) forgetAll() {
	for i := range m.places {
		p := &m.places[i]
		p.changed.Add(1)
		for j := range p.answers {
			p.answers[j].Store(nil)
		}
	}
}

// forget drops the answer for a key, since its tokens changed.
func (m *memory) forget(key string) {
	key = call.ShortKey(key)
	p := m.place(key)
	p.changed.Add(1)
	for i := range p.answers {
		if a := p.answers[i].Load(); a != nil && a.key == key {
			p.answers[i].CompareAndSwap(a, nil)
		}
	}
}
