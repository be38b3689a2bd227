package law

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// arrivals of a cold start at the given rate are put into buckets, and visit sees the history after each.
func cold(rng *rand.Rand, seconds, rate float64, slots int, takes draw, visit func(h *history, answers float64) (goOn bool)) {
	n := int(seconds / span)
	buckets, latencies := make([]bucket, n), make([][]float64, n)
	var busy free
	for at := rng.ExpFloat64() / rate; at < seconds; at += rng.ExpFloat64() / rate {
		start := at
		if slots > 0 && len(busy) >= slots {
			start = math.Max(at, heap.Pop(&busy).(float64))
		}
		end := start + takes(rng)
		if slots > 0 {
			heap.Push(&busy, end)
		}
		buckets[min(int(at/span), n-1)].admitted++
		if i := int(end / span); i < n {
			b := &buckets[i]
			b.left++
			b.ended++
			b.answered++
			b.latency += end - at
			latencies[i] = append(latencies[i], end-at)
		}
	}
	var h history
	p, answers := Default(), 0.0
	for i := range buckets {
		b := &buckets[i]
		quick := h.quick()
		for _, latency := range latencies[i] {
			if latency < quick {
				b.quick++
			}
		}
		h.n += b.admitted - b.left
		b.inside = h.n * span
		answers += b.ended
		h.close(b, ignore)
		if !visit(&h, answers) {
			return
		}
		h.measure(&p, 5)
	}
}

// A cold start into a full pool is a queue that grows from the first moment on, and answers come in its order. It is seen within
// a hundred answers, or as many as pile up until it is no chance any more.
func TestAFloodOfAPoolIsSeen(t *testing.T) {
	pure(t)
	p := Default()
	for _, pool := range []struct {
		slots int
		takes float64
	}{{8, 0.025}, {4, 0.1}, {1, 0.005}, {16, 0.02}, {64, 0.05}} {
		for _, load := range []float64{1.5, 2, 3, 10} {
			rate := float64(pool.slots) / pool.takes
			t.Run(fmt.Sprintf("%dx%v@%v", pool.slots, pool.takes, load), func(t *testing.T) {
				seen, most := 0, 0.0
				const seeds = 50
				for seed := range uint64(seeds) {
					rng := rand.New(rand.NewPCG(seed, 7))
					var l latency
					cold(rng, 10, load*rate, pool.slots, constant(pool.takes), func(h *history, answers float64) bool {
						b := h.ring[len(h.ring)-1]
						l.glance(&p, b.answered, b.latency)
						if !h.piles(&p, l.least) {
							return true
						}
						seen++
						most = math.Max(most, answers)
						return false
					})
				}
				t.Logf("seen %d of %d, after at most %v answers, %.2f s", seen, seeds, most, most/rate)
				require.Equal(t, seeds, seen)
				require.LessOrEqual(t, most, math.Max(200, 2*rate), "answers")
			})
		}
	}
}

// A service that needs half a second for its first connections begins with a queue, and then answers at one rate. That is seen
// soon after the first 100 answers.
func TestAQueueThatIsThereFromTheFirstAnswerIsSeen(t *testing.T) {
	pure(t)
	p := Default()
	const slots, takes = 8, 0.025
	seen, all := 0, 0.0
	const seeds = 50
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var f flow
		var l latency
		calls := 0
		connects := func(*rand.Rand) float64 {
			if calls++; calls <= slots {
				return 0.5 + takes
			}
			return takes
		}
		cold(rng, 5, 3*slots/takes, slots, connects, func(h *history, answers float64) bool {
			b := h.ring[len(h.ring)-1]
			l.glance(&p, b.answered, b.latency)
			f.pile(h.piles(&p, l.least))
			if f.piled < sure {
				return true
			}
			seen++
			all += answers
			return false
		})
	}
	t.Logf("seen %d of %d, after %.0f answers in the mean", seen, seeds, all/float64(seen))
	require.Equal(t, seeds, seen)
	require.Less(t, all/seeds, 200.0, "answers")
}

// Calls that take long are no queue, however many of them come in until the first has ended. While few have ended, chance makes
// some look like one: a false alarm.
func TestSlowCallsFromAColdStartAreRarelyTakenForAQueue(t *testing.T) {
	pure(t)
	p := Default()
	const seeds = 200
	for name, of := range map[string]func(float64) draw{
		"exponential": exponential, "constant": constant, "lognormal": lognormal, "bimodal": bimodal,
		"narrow": narrow, "alike": alike, "uniform": uniform, "half": half,
	} {
		for _, c := range []struct{ rate, mean float64 }{{150, 1}, {20, 2}, {240, 0.8}, {500, 0.3}, {1000, 0.05}, {5, 3}} {
			t.Run(fmt.Sprintf("%s/%v for %v s", name, c.rate, c.mean), func(t *testing.T) {
				alarms := 0
				for seed := range uint64(seeds) {
					rng := rand.New(rand.NewPCG(seed, 9))
					var f flow
					var l latency
					cold(rng, 15, c.rate, 0, of(c.mean), func(h *history, _ float64) bool {
						b := h.ring[len(h.ring)-1]
						l.glance(&p, b.answered, b.latency)
						f.pile(h.piles(&p, l.least))
						if f.piled >= sure {
							alarms++
						}
						return f.piled < sure
					})
				}
				t.Logf("%d of %d", alarms, seeds)
				require.LessOrEqual(t, alarms, seeds*6/100)
			})
		}
	}
}

func TestAQuietOrEmptyServiceHasNoQueue(t *testing.T) {
	p := Default()
	var h history
	require.False(t, h.piles(&p, 0.01))
	for range 300 {
		h.close(&bucket{admitted: 3, left: 3, ended: 3, answered: 3, latency: 0.03, inside: 0.03}, ignore)
		require.False(t, h.piles(&p, 0.01))
	}
}
