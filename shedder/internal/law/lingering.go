package law

import "math"

// A lingering counts the requests that stay for long while all others are answered as fast as ever, such as long polls. They
// hold up no other request, so they do not count as in flight.
type lingering struct {
	n     float64
	least float64 // the others in flight, at least, in the second that is being looked at
	taken float64 // seconds of it
}

// discount takes the lingering requests off r.
func (s *lingering) discount(r *Reading) {
	s.n = math.Min(s.n, r.InFlight)
	r.InFlight -= s.n
	s.least = math.Min(s.least, r.InFlight)
}

// close judges a second: answers kept pace and took no longer than usual. By Little's law, the sum of their latencies in a
// second is the number of requests in flight that they account for; the others linger.
func (s *lingering) close(l *Law) {
	if s.taken += span; s.taken < settle {
		return
	}
	b, seconds, _ := l.history.last(settle)
	m := l.latency.typical
	if m > 0 && l.latency.calm >= settle && b.answered >= l.P.Few && b.mean() <= l.P.Near*m && b.kept() >= keeping {
		s.n = math.Max(s.n, s.n+s.least-2*b.latency/seconds)
	}
	s.least, s.taken = math.Inf(1), 0
}
