package shedder

import "math"

// How rt, the latency of an undisturbed request, is learnt.
const (
	rtMinSamples = 10 // an average of fewer successes does not decide
	rtSlots      = 60 // the horizon: the least average of each of the last 60 calm seconds
)

// An rtLearner keeps the least average latency over a horizon that moves only with calm time. Averages of a bucket, not
// single requests, because the fastest request of a mixed load says little about the load.
type rtLearner struct {
	count, sum int64            // successes not yet enough for an average
	slots      [rtSlots]float64 // least average of a calm second, in ns; 0 is none
	head       int              // the slot being filled
	age        float64          // calm seconds spent in it
	least      float64          // over the slots, or of the overload if calm has taught nothing; 0 if nothing is known
}

// add takes the successes of one closed bucket: their number and the sum of their latencies in ns.
func (l *rtLearner) add(count, sum int64, calm bool) {
	l.count += count
	l.sum += sum
	if l.count < rtMinSamples {
		return
	}
	avg := float64(l.sum) / float64(l.count)
	l.count, l.sum = 0, 0
	// A limit that learnt its latency in the overload would justify the overload, so then rt may fall but not rise.
	if calm || l.least == 0 || avg < l.least {
		if s := &l.slots[l.head]; *s == 0 || avg < *s {
			*s = avg
		}
		l.refresh()
	}
}

// elapse lets calm time pass, in seconds: the oldest slots are forgotten.
func (l *rtLearner) elapse(seconds float64) {
	l.age += math.Min(seconds, rtSlots)
	for ; l.age >= 1; l.age-- {
		next := (l.head + 1) % rtSlots
		if l.others(next) == 0 {
			continue // never forget the only thing known
		}
		l.head = next
		l.slots[next] = 0
	}
	l.refresh()
}

// others returns the least average of all slots but one.
func (l *rtLearner) others(but int) float64 {
	least := 0.0
	for i, v := range l.slots {
		if i != but && v > 0 && (least == 0 || v < least) {
			least = v
		}
	}
	return least
}

func (l *rtLearner) refresh() { l.least = l.others(-1) }
