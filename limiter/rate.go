package limiter

import (
	"cmp"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// A Rate is a number of tokens per duration, such as 100 per second. It is exact: 7 per minute and 300 million per
// second do not drift in the long run. The zero Rate is not valid.
type Rate struct {
	// Tokens is the number of tokens in each Per. If Tokens is 0, used tokens never come back.
	Tokens int
	// Per is the time in which that number of tokens comes back. It must be positive.
	Per time.Duration
}

// Per returns the Rate of n tokens per d.
func Per(n int, d time.Duration) Rate { return Rate{Tokens: n, Per: d} }

// String returns the rate in the form "100 per 1s".
func (r Rate) String() string { return fmt.Sprintf("%d per %v", r.Tokens, r.Per) }

// MarshalText returns the rate in the form "100/s", with the units ns, µs, ms, s, m and h, or "7/1m30s".
func (r Rate) MarshalText() ([]byte, error) {
	per := r.Per.String()
	for _, d := range []time.Duration{time.Nanosecond, time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour} {
		if r.Per == d {
			per = strings.TrimLeft(strings.TrimSuffix(strings.TrimSuffix(per, "0s"), "0m"), "1")
		}
	}
	return []byte(strconv.Itoa(r.Tokens) + "/" + per), nil
}

// UnmarshalText reads the text of [Rate.MarshalText]. It does not check whether a limit can have the rate.
func (r *Rate) UnmarshalText(text []byte) error {
	tokens, per, _ := strings.Cut(string(text), "/")
	n, err := strconv.Atoi(tokens)
	d, err2 := time.ParseDuration(per)
	if err2 != nil {
		d, err2 = time.ParseDuration("1" + per)
	}
	if err != nil || err2 != nil {
		return fmt.Errorf(`limiter: Rate must be tokens and a time, such as "100/s" or "3/1h30m", got %q`, text)
	}
	*r = Rate{Tokens: n, Per: d}
	return nil
}

// Compare returns -1 if r is slower than s, 1 if it is faster, and 0 if they are equal: 60 per minute is 1 per second. Rates
// that are not valid count as 0.
func (r Rate) Compare(s Rate) int {
	if r.validate("") != nil {
		r = Rate{Per: 1}
	}
	if s.validate("") != nil {
		s = Rate{Per: 1}
	}
	h1, l1 := bits.Mul64(uint64(r.Tokens), uint64(s.Per))
	h2, l2 := bits.Mul64(uint64(s.Tokens), uint64(r.Per))
	return cmp.Or(cmp.Compare(h1, h2), cmp.Compare(l1, l2))
}

// validate returns an error that begins with the name of the limit.
func (r Rate) validate(limit string) error {
	switch {
	case r.Per <= 0:
		return fmt.Errorf("limiter: %s: Rate.Per must be positive, got %v", limit, r.Per)
	case r.Tokens < 0:
		return fmt.Errorf("limiter: %s: Rate.Tokens must not be negative, got %d", limit, r.Tokens)
	}
	return nil
}

// fraction returns the rate as a fraction in its lowest terms: tokens for each ns.
func (r Rate) fraction() (tokens, ns int64) {
	a, b := int64(r.Tokens), int64(r.Per)
	for x, y := a, b; ; x, y = y, x%y {
		if y == 0 {
			return a / x, b / x
		}
	}
}
