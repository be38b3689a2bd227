package waitlist

import (
	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/splitmix"
)

const (
	lineBits  = 6
	lineCount = 1 << lineBits // lines of a priority for Fair
	handSize  = 6             // lines that a key may wait in
	lookBack  = 8             // last requests of a line among which the largest flow is looked for
)

// A level holds the waiting requests of one priority, in one line or in lineCount.
type level struct {
	priority spillway.Priority
	lines    [lineCount]*line // nil until they are used
	flows    map[uint64]flow  // the waiting requests of Fair, by the hash of their key
	guests   int
	n        int64   // places that they need
	virtual  float64 // time of the line that was served last
}

// A line holds waiting requests in the order of their arrival.
type line struct {
	level      *level
	head, tail *Guest
	guests     int
	n          int64   // places that they need
	virtual    float64 // time: what its requests have cost, and at least that of the level when it was empty
}

// A flow is the waiting requests of one key.
type flow struct {
	line   *line
	guests int
}

// line returns the i-th line.
func (l *level) line(i uint64) *line {
	i %= lineCount
	if l.lines[i] == nil {
		l.lines[i] = &line{level: l}
	}
	return l.lines[i]
}

// choose returns the line for g.
func (l *level) choose(g *Guest, fair bool, seed uint64) *line {
	if g.fair = fair; !fair {
		return l.line(0)
	}
	g.place = g.hash(seed)
	if f, ok := l.flows[g.place]; ok {
		return f.line
	}
	best := l.line(g.place)
	for i := 1; i < handSize; i++ {
		if ln := l.line(g.place >> (i * lineBits)); ln.guests < best.guests {
			best = ln
		}
	}
	return best
}

// push adds g to the end of a line.
func (l *level) push(ln *line, g *Guest) {
	if ln.guests == 0 {
		ln.virtual = max(ln.virtual, l.virtual)
	}
	g.line = ln
	if g.prev = ln.tail; g.prev == nil {
		ln.head = g
	} else {
		g.prev.next = g
	}
	ln.tail = g
	ln.guests++
	ln.n += g.N
	l.guests++
	l.n += g.N
	if g.fair {
		if l.flows == nil {
			l.flows = map[uint64]flow{}
		}
		l.flows[g.place] = flow{line: ln, guests: l.flows[g.place].guests + 1}
	}
}

// pop takes g out of its line.
func (l *level) pop(g *Guest) {
	ln := g.line
	if g.prev == nil {
		ln.head = g.next
	} else {
		g.prev.next = g.next
	}
	if g.next == nil {
		ln.tail = g.prev
	} else {
		g.next.prev = g.prev
	}
	g.prev, g.next, g.line = nil, nil, nil
	ln.guests--
	ln.n -= g.N
	l.guests--
	l.n -= g.N
	if g.fair {
		f := l.flows[g.place]
		if f.guests--; f.guests == 0 {
			delete(l.flows, g.place)
		} else {
			l.flows[g.place] = f
		}
	}
}

// serve moves the virtual time on by the turn of g.
func (l *level) serve(g *Guest) {
	l.virtual = max(l.virtual, g.line.virtual)
	g.line.virtual += g.cost()
}

// next returns the guest whose turn it is.
func (l *level) next(order Order, stands bool) *Guest {
	var best *Guest
	last := order.last(stands)
	for _, ln := range l.lines {
		switch {
		case ln == nil || ln.guests == 0:
		case last:
			if best == nil || ln.tail.number > best.number {
				best = ln.tail
			}
		case best == nil:
			best = ln.head
		case order == Fair && ln.virtual != best.line.virtual:
			if ln.virtual < best.line.virtual {
				best = ln.head
			}
		case ln.head.number < best.number:
			best = ln.head
		}
	}
	return best
}

// victim returns the guest that loses its place if one has to: the newest of the largest flow at the end of the longest
// line.
func (l *level) victim() *Guest {
	var longest *line
	for _, ln := range l.lines {
		if ln != nil && (longest == nil || ln.guests > longest.guests) {
			longest = ln
		}
	}
	best := longest.tail
	for g, i := best.prev, 1; g != nil && i < lookBack; g, i = g.prev, i+1 {
		if l.flowOf(g) > l.flowOf(best) {
			best = g
		}
	}
	return best
}

// flowOf returns how many guests have the key of g.
func (l *level) flowOf(g *Guest) int {
	if !g.fair {
		return 0
	}
	return l.flows[g.place].guests
}

// reset makes an empty level as good as new.
func (l *level) reset() {
	l.virtual = 0
	for _, ln := range l.lines {
		if ln != nil {
			ln.virtual = 0
		}
	}
}

// hash returns a hash of the key of g. Requests without a key are all different.
func (g *Guest) hash(seed uint64) uint64 {
	if g.Key == "" {
		return splitmix.Mix(seed ^ g.number)
	}
	return splitmix.Hash(g.Key, seed)
}

// cost returns the virtual time that g uses.
func (g *Guest) cost() float64 {
	if g.Weight > 0 {
		return float64(g.N) / g.Weight
	}
	return float64(g.N)
}
