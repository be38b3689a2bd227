package law

import "math"

// follows compares explanations of the latencies of the requests that came and ended in the last seconds. In a queue, they follow the number
// in flight when they came, which waits ahead of them. In a slow service they do not, or follow the number when they end, which came in the
// meantime. A steady trend says nothing, since a service may become slower or faster with time. It returns the logarithm of the likelihood
// ratio (of normal distributions of unknown variance), which is greater than 0 for a queue, and 0 if answers came too soon for one.
func (h *history) follows(seconds float64) float64 {
	n := len(h.ring)
	first := max(0, n-int(seconds/span))
	var inside [most + 1]float64 // when bucket k began
	inside[n] = h.n - (h.open.admitted - h.open.left)
	for k := n - 1; k >= first; k-- {
		inside[k] = inside[k+1] - (h.ring[k].admitted - h.ring[k].left)
	}
	var all bucket
	var slow, meantime, full spread
	for k := first; k < n; k++ {
		b := &h.ring[k]
		begun := float64(k) + 0.5 - b.mean()/span // when its requests came
		i, part := math.Modf(begun)
		if !(b.latency > 0) || begun < float64(first) {
			continue
		}
		ahead := inside[int(i)]*(1-part) + inside[int(i)+1]*part
		all.add(b, 1)
		slow.add(begun, math.Log(b.mean()))
		meantime.add(begun, math.Log(b.mean()/max((inside[k]+inside[k+1])/2, 1)))
		full.add(begun, math.Log(b.mean()/max(ahead, 1)))
	}
	if slow.n < 3 || !all.queued() {
		return 0
	}
	return slow.n / 2 * math.Log(min(slow.variance(), meantime.variance())/full.variance())
}

// A spread computes the variance of numbers about their trend over time, a line (least squares).
type spread struct{ n, t, x, tt, tx, xx float64 }

func (s *spread) add(t, x float64) {
	s.n++
	s.t += t
	s.x += x
	s.tt += t * t
	s.tx += t * x
	s.xx += x * x
}

// variance returns at least the square of a hundredth, the resolution of the history.
func (s *spread) variance() float64 {
	tt, tx, xx := s.tt-s.t*s.t/s.n, s.tx-s.t*s.x/s.n, s.xx-s.x*s.x/s.n
	if tt > 0 {
		xx -= tx * tx / tt
	}
	return max(xx/s.n, 1e-4)
}
