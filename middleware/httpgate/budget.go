package httpgate

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/spillway-go/spillway"
)

// A RetryBudget decides whether a retry is affordable. It follows the retry throttling of gRPC (proposal A6): each failed
// call takes a token, each success gives back a fraction of one, and retries are affordable while more than half of the
// tokens are left. So a few failures are retried at once, but a dependency that is down gets few requests beyond the
// first attempts.
//
// It is made by [NewRetryBudget], and safe for concurrent use. Share one between the clients of a dependency.
type RetryBudget struct {
	max, ratio int64 // in thousandths of a token
	tokens     atomic.Int64
}

// RetryBudgetOptions configure a [RetryBudget]. The zero RetryBudgetOptions consists entirely of defaults.
type RetryBudgetOptions struct {
	// MaxTokens is the greatest number of tokens, and the number at the start: from 1 to 1000. If MaxTokens is 0, it is
	// 10.
	MaxTokens int
	// TokenRatio is the number of tokens that a success gives back: from 0.001 to 1000, with three decimals. If
	// TokenRatio is 0, it is 0.1.
	TokenRatio float64
}

const (
	defaultMaxTokens  = 10
	defaultTokenRatio = 0.1
	thousandths       = 1000
)

// NewRetryBudget returns a RetryBudget that has all its tokens. If o is nil, it has the defaults. The error names a field
// and its value.
func NewRetryBudget(o *RetryBudgetOptions) (*RetryBudget, error) {
	var opts RetryBudgetOptions
	if o != nil {
		opts = *o
	}
	if opts.MaxTokens == 0 {
		opts.MaxTokens = defaultMaxTokens
	}
	if opts.TokenRatio == 0 {
		opts.TokenRatio = defaultTokenRatio
	}
	if opts.MaxTokens < 1 || opts.MaxTokens > 1000 {
		return nil, fmt.Errorf("httpgate: MaxTokens: must be from 1 to 1000, got %d", opts.MaxTokens)
	}
	if !(opts.TokenRatio >= 0.001 && opts.TokenRatio <= 1000) { // so that NaN is refused
		return nil, fmt.Errorf("httpgate: TokenRatio: must be from 0.001 to 1000, got %v", opts.TokenRatio)
	}
	b := &RetryBudget{max: int64(opts.MaxTokens) * thousandths, ratio: int64(math.Floor(opts.TokenRatio*thousandths + 1e-6))}
	b.tokens.Store(b.max)
	return b, nil
}

// Allow reports whether a retry is affordable. It takes no token; a failed retry takes one.
func (b *RetryBudget) Allow() bool { return b.tokens.Load() > b.max/2 }

// Record takes a token for a [spillway.Failure] or [spillway.Dropped], and gives back a fraction of one for a
// [spillway.Success]. Other outcomes say nothing.
func (b *RetryBudget) Record(o spillway.Outcome) {
	var change int64
	switch o {
	case spillway.Failure, spillway.Dropped:
		change = -thousandths
	case spillway.Success:
		change = b.ratio
	default:
		return
	}
	for {
		old := b.tokens.Load()
		now := min(max(old+change, 0), b.max)
		if now == old || b.tokens.CompareAndSwap(old, now) {
			return
		}
	}
}

// Tokens returns how many tokens are left.
func (b *RetryBudget) Tokens() float64 { return float64(b.tokens.Load()) / thousandths }
