package shadow

import (
	"sync"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/stripe"
)

// A stash keeps the answers of several candidates between Admit and Done, where a spillway.Ticket is one word. It grows to the
// greatest number of requests that were in flight at once and allocates nothing after that.
type stash struct {
	stripes []stashStripe
}

type stashStripe struct {
	mu   sync.Mutex
	kept []answers
	free []uint32 // which of kept are
	_    [stripe.Size]byte
}

// answers are what the candidates said of one request.
type answers struct {
	tickets  [maxCandidates]spillway.Ticket
	admitted uint8 // bit i: candidate i
}

// stripeBits is the number of the lowest bits of a spillway.Ticket that name the stripe.
const stripeBits = 8

func newStash() *stash { return &stash{stripes: make([]stashStripe, stripe.Count())} }

// put keeps a until they are taken.
func (s *stash) put(a *answers) spillway.Ticket {
	i := stripe.Index(len(s.stripes))
	st := &s.stripes[i]
	st.mu.Lock()
	defer st.mu.Unlock()
	last := len(st.free) - 1
	if last < 0 {
		st.kept = append(st.kept, *a)
		return spillway.Ticket(len(st.kept)-1)<<stripeBits | spillway.Ticket(i)
	}
	at := st.free[last]
	st.free = st.free[:last]
	st.kept[at] = *a
	return spillway.Ticket(at)<<stripeBits | spillway.Ticket(i)
}

// take returns the answers kept as t, and forgets them.
func (s *stash) take(t spillway.Ticket, a *answers) {
	st := &s.stripes[t&(1<<stripeBits-1)]
	st.mu.Lock()
	defer st.mu.Unlock()
	at := t >> stripeBits
	*a = st.kept[at]
	st.free = append(st.free, uint32(at))
}
