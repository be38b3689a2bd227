package limiter

import (
	"fmt"
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
