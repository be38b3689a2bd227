package level

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/spillway-go/spillway/internal/inflight"
	"github.com/spillway-go/spillway/internal/splitmix"
)

// A State decides about requests by the latest plan. The zero State knows no limit. [State.Ask] is safe for concurrent
// use, also with [State.Step], of which one call may run at a time.
type State struct {
	mark     atomic.Uint64 // see pack
	drop     atomic.Uint64 // position or chance, as a share of 2^64, below which requests of the class dropAt are dropped
	rotation atomic.Uint64
	limits   [ranks]atomic.Int64
	levels   Histogram
	planner  planner
	adviser  adviser
	shift    int // of the present mark
}

// The fields of a mark, each of a number of bits from a place on.
const (
	classBits = 5
	nextAt    = classBits
	dropAt    = 2 * classBits
	byKeysAt  = 3 * classBits // 1 if keys decide about drops
	shiftAt   = byKeysAt + 1
	classMask = 1<<classBits - 1
	places32  = 32 // the upper half is that of the position
)

func pack(p *plan, shift int) uint64 {
	m := uint64(p.mark) | uint64(p.next)<<nextAt | uint64(p.dropAt)<<dropAt | uint64(shift)<<shiftAt | p.position>>places32<<places32
	if p.dropKeys > 0 {
		m |= 1 << byKeysAt
	}
	return m
}

// Ask returns the greatest number in flight that a request may join, and whether it is to be dropped whatever is in
// flight. Time is in ns since any fixed moment; chance follows from it.
func (s *State) Ask(priority int, key string, now int64) (limit int64, dropped bool) {
	mark, class := s.mark.Load(), Class(priority)
	// A sample of the levels will do: at high rates, all cores would write to the same counters.
	if (uint64(now)*splitmix.Gamma)>>(64-mark>>shiftAt&classMask) == 0 {
		if key == "" {
			s.levels.AddKeyless(class)
		} else {
			s.levels.Add(class, Position(key, s.rotation.Load()))
		}
	}
	if odds := s.drop.Load(); odds != 0 {
		if d := int(mark >> dropAt & classMask); class < d || class == d && s.position(key, now, mark>>byKeysAt&1 != 0) < odds {
			dropped = true
		}
	}
	t := int(mark & classMask)
	r := above
	switch {
	case class > t:
	case class == t:
		r = at
		if p := mark >> places32; p != 0 && s.position(key, now, true)>>places32 < p {
			r = behind
		}
	case class == int(mark>>nextAt&classMask):
		r = next
	default:
		r = below
	}
	return s.limits[r].Load(), dropped
}

// position returns the position of a key, or chance for requests without one.
func (s *State) position(key string, now int64, byKey bool) uint64 {
	if byKey && key != "" {
		return Position(key, s.rotation.Load())
	}
	return splitmix.Mix(uint64(now) + splitmix.Gamma)
}

// samples is how many levels are counted in a tick, about, if there are more.
const samples = 256

// Step makes a new plan. No limit becomes less than least. Rotation is the present rotation of the positions.
func (s *State) Step(t *Tick, least int64, rotation uint64) {
	s.rotation.Store(rotation)
	p := s.planner.plan(&s.levels, t, float64(uint64(1)<<s.shift))
	s.adviser.step(t, &s.levels.fresh)
	s.shift = bits.Len64(uint64(t.Admitted+t.Refused) / samples)
	s.shift = min(s.shift, classMask)
	odds := p.dropKeys
	if odds == 0 {
		odds = share(p.drop)
	}
	for r := range s.limits {
		if !(t.Limit < math.MaxInt32) { // a NaN is no limit either
			s.limits[r].Store(inflight.NoLimit)
		} else {
			s.limits[r].Store(max(1, int64(p.limits[r]), least))
		}
	}
	s.drop.Store(odds)
	s.mark.Store(pack(&p, s.shift))
}

// share returns x, 0 to 1, as a share of 2^64.
func share(x float64) uint64 { return uint64(min(max(x, 0), 1-0x1p-53)*(1<<63)) << 1 }

// Mark returns the priority below which requests only get what the others leave.
func (s *State) Mark() int { return Priority(int(s.mark.Load() & classMask)) }

// Advice returns what clients should hold back. It must not be called during [State.Step].
func (s *State) Advice() Advice { return s.adviser.advice() }
