package httpgate

import (
	"net/http"
	"time"
)

// RetryAfter returns the delay, from now, that the Retry-After of h asks for, in seconds or as a date. A date is
// measured against the Date of h if there is one, so that the clocks need not agree. Invalid values and past dates give
// 0, and delays of more than a day give a day.
//
// For a response with outcome Dropped, [Transport] passes this delay to the policies of its gate as Result.RetryAfter,
// so that a breaker waits as long as the server asked.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if value == "" {
		return 0
	}
	if seconds, ok := digits(value); ok {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter*time.Second)
}

// digits returns the number that s consists of, or maxRetryAfter if it is greater.
func digits(s string) (n int, ok bool) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n*10+int(c-'0'), maxRetryAfter)
	}
	return n, true
}
