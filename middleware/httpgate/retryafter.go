package httpgate

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// The values of Retry-After in refusals, in seconds: every second up to a minute, every 5 s up to ten minutes, every 30 s up
// to an hour, and every 5 minutes up to a day. A quarter of each spans several values. They are formatted in advance, so
// that a refusal formats nothing, and never modified. Only quotas have longer waits.
var (
	retryAfterSeconds = retryAfterSteps()            //nolint:gochecknoglobals // a table: made once, never changed
	retryAfterValues  = formatAll(retryAfterSeconds) //nolint:gochecknoglobals // as above
)

const (
	maxRetryAfter  = 24 * 60 * 60 // seconds: up to here values are prepared, and a server's Retry-After is accepted
	longRetryAfter = 1 << 30      // seconds: 34 years
)

func retryAfterSteps() (steps []int) {
	for s := 1; s <= maxRetryAfter; {
		steps = append(steps, s)
		switch {
		case s < 60:
			s++
		case s < 10*60:
			s += 5
		case s < 60*60:
			s += 30
		default:
			s += 5 * 60
		}
	}
	return steps
}

func formatAll(steps []int) []string {
	out := make([]string, len(steps))
	for i, s := range steps {
		out[i] = strconv.Itoa(s)
	}
	return out
}

// retryAfterHeader returns a value for Retry-After that is not earlier than d, spread at random over a quarter of d: over 2 s
// at least and 6 hours at most.
func retryAfterHeader(d time.Duration) []string {
	return retryAfterAt(d, rand.Float64())
}

// retryAfterAt returns the header for a position in [0, 1) of the spread.
func retryAfterAt(d time.Duration, position float64) []string {
	least := 1
	if d > time.Second {
		least = int(min((d-1)/time.Second+1, longRetryAfter))
	}
	spread := min(max(2, least/4), maxRetryAfter/4)
	seconds := least + int(position*float64(spread+1))
	if least >= maxRetryAfter {
		return []string{strconv.Itoa(seconds)}
	}
	i, _ := slices.BinarySearch(retryAfterSeconds, seconds)
	i = min(i, len(retryAfterValues)-1)
	return retryAfterValues[i : i+1 : i+1]
}
