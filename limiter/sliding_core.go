package limiter

import (
	"sort"
	"time"
)

// A sliding is the rule of a SlidingLog and of a SlidingWindow: taken tokens count for one window. The log keeps every
// instant. The window rounds instants up to the end of a sub-window, so that all instants of a sub-window share an
// entry. So tokens count for up to one sub-window too long, and never too short.
type sliding struct {
	limit   int64
	length  int64 // ns of the window
	quantum int64 // ns of a sub-window; 0 for the log
	entries int   // upper bound: the entries of one window, and the same number for reserved tokens
}

// slidingState is a ring of entries, the oldest first. Its zero value is the state of an unused limit.
type slidingState struct {
	ring        []slidingEntry
	first, used int   // index of the oldest entry, and the number of entries
	sum         int64 // of all n
	empty       int   // entries with n = 0, because their tokens were given back
	last        int64 // ns up to which entries have expired
}

// slidingEntry holds the tokens taken at an instant. Entries are sorted by at.
type slidingEntry struct{ at, n int64 }

func (s *slidingState) entry(i int) *slidingEntry {
	if i += s.first; i >= len(s.ring) {
		i -= len(s.ring)
	}
	return &s.ring[i]
}

// round returns the instant under which ns is counted.
func (c *sliding) round(ns int64) int64 {
	if c.quantum == 0 {
		return ns
	}
	return (ns/c.quantum + 1) * c.quantum
}

// expire forgets entries that no longer count at ns. It returns ns, or the latest time of earlier calls if that is
// later.
func (s *slidingState) expire(ns, length int64) int64 {
	s.last = max(s.last, ns)
	for s.used > 0 {
		e := s.entry(0)
		if s.last-e.at < length {
			break
		}
		s.drop(e)
		if s.first++; s.first == len(s.ring) {
			s.first = 0
		}
	}
	return s.last
}

// drop takes the oldest or youngest entry out of the sums.
func (s *slidingState) drop(e *slidingEntry) {
	if e.n == 0 {
		s.empty--
	}
	s.sum -= e.n
	s.used--
}

func (c *sliding) take(s *slidingState, m moment, n, maxWait int64) (wait int64, stamp uint64, ok bool) {
	at := s.expire(m.ns, c.length)
	if over := s.sum + n - c.limit; over > 0 {
		at = c.until(s, over)
		wait = at - m.ns
		if wait > maxWait || s.sum+n > 2*c.limit {
			return wait, 0, false
		}
	}
	at = c.round(at)
	at = s.push(at, n, c.entries)
	return wait, uint64(at), true
}

// until returns the time when at least over of the tokens that count now will have expired.
func (c *sliding) until(s *slidingState, over int64) int64 {
	at := int64(0)
	for i := 0; i < s.used && over > 0; i++ {
		e := s.entry(i)
		over -= e.n
		at = e.at
	}
	return int64(sum(at, c.length))
}

// push adds n at the given instant and returns the instant. If the youngest entry is later, its instant counts.
func (s *slidingState) push(at, n int64, most int) int64 {
	s.sum += n
	if s.used > 0 {
		if e := s.entry(s.used - 1); e.at >= at {
			if e.n == 0 {
				s.empty--
			}
			e.n += n
			return e.at
		}
	}
	if s.used == len(s.ring) {
		s.grow(most)
	}
	s.used++
	*s.entry(s.used - 1) = slidingEntry{at: at, n: n}
	return at
}

// grow makes room for one more entry, by forgetting the empty entries or by a larger ring. The number of entries that
// are not empty is bounded.
func (s *slidingState) grow(most int) {
	size := len(s.ring)
	if s.empty == 0 || s.empty < s.used/2 && size < most {
		size = max(2*size, 4)
		if len(s.ring) < most {
			size = min(size, most)
		}
	}
	ring := make([]slidingEntry, 0, size)
	for i := range s.used {
		if e := *s.entry(i); e.n > 0 {
			ring = append(ring, e)
		}
	}
	s.first, s.used, s.empty = 0, len(ring), 0
	s.ring = ring[:size]
}

func (c *sliding) giveBack(s *slidingState, m moment, l loan) {
	s.expire(m.ns, c.length)
	if l.stamp == noStamp {
		c.giveBackOldest(s, l)
		return
	}
	i := sort.Search(s.used, func(i int) bool { return s.entry(i).at >= int64(l.stamp) })
	if i == s.used || s.entry(i).at != int64(l.stamp) {
		return
	}
	s.reduce(s.entry(i), l.n)
	s.trim()
}

// giveBackOldest returns tokens for which only the earliest possible time is known. Whichever tokens they were, the
// remaining tokens expire at their time or later.
func (c *sliding) giveBackOldest(s *slidingState, l loan) {
	if s.last-l.took >= c.length {
		return
	}
	for i := 0; i < s.used && l.n > 0; i++ {
		l.n -= s.reduce(s.entry(i), l.n)
	}
	s.trim()
}

// reduce takes up to n off an entry, and returns how many.
func (s *slidingState) reduce(e *slidingEntry, n int64) int64 {
	back := min(n, e.n)
	if e.n -= back; e.n == 0 && back > 0 {
		s.empty++
	}
	s.sum -= back
	return back
}

// trim drops the youngest entries that are empty.
func (s *slidingState) trim() {
	for s.used > 0 && s.entry(s.used-1).n == 0 {
		s.drop(s.entry(s.used - 1))
	}
}

// peek does not change s: a question about a later time must not expire tokens that count now.
func (c *sliding) peek(s *slidingState, m moment) State {
	now := max(s.last, m.ns)
	counts := s.sum
	for i := 0; i < s.used && now-s.entry(i).at >= c.length; i++ {
		counts -= s.entry(i).n
	}
	st := State{Limit: c.limit, Remaining: max(c.limit-counts, 0)}
	if counts > 0 {
		gone := s.sum - counts
		over := counts - c.limit + st.Remaining + 1
		st.NextIn = time.Duration(c.until(s, gone+over) - m.ns)
		st.FullIn = time.Duration(c.until(s, s.sum) - m.ns)
	}
	return st
}

func (c *sliding) idle(s *slidingState, m moment) bool {
	return s.used == 0 || max(s.last, m.ns)-s.entry(s.used-1).at >= c.length // the youngest is not empty
}

func (c *sliding) since(int64, *slidingState) core[slidingState] { return c }

// heir returns a state as if all tokens had been taken at the youngest instant. It has one entry, whatever the number
// in s.
func (c *sliding) heir(s *slidingState, _ moment) slidingState {
	next := slidingState{last: s.last}
	if s.sum > 0 {
		next.push(s.entry(s.used-1).at, s.sum, c.entries)
	}
	return next
}

func (c *sliding) max() int64 { return c.limit }

func (c *sliding) window() time.Duration { return time.Duration(c.length) }

func (c *sliding) follows(core[slidingState]) error { return nil }

// adopt changes nothing: requests that have passed still count.
func (c *sliding) adopt(*slidingState, moment, core[slidingState]) {}
