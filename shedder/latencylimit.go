package shedder

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// A Sample is what one request tells an [Estimator].
type Sample struct {
	Latency  time.Duration // from its admission to its end
	InFlight int           // with the request, when it was admitted
	Dropped  bool          // it met overload further on
}

// An Estimator learns how many requests may be in flight: [Gradient2], [Vegas], [AIMD], or one of yours.
type Estimator interface {
	// Step returns the limit after one more sample, given the limit before it. It is called for one sample at a time. What
	// it returns is brought into the bounds of the [LatencyLimit]; what is not a number leaves the limit as it is.
	Step(limit float64, s Sample) float64
}

// The defaults of [LatencyLimitOptions].
const (
	DefaultInitial    = 20
	DefaultLeastLimit = 1
	DefaultMostLimit  = 1000
)

// LatencyLimitOptions tune a [LatencyLimit]. The zero LatencyLimitOptions are the defaults.
type LatencyLimitOptions struct {
	// Estimator learns the limit. If Estimator is nil, it is a [Gradient2].
	Estimator Estimator
	// Initial is the limit to begin with. If Initial is 0, it is 20, or what is nearest to that within the bounds.
	Initial int
	// Min is the least limit. If Min is 0, it is 1.
	Min int
	// Max is the greatest limit. If Max is 0, it is 1000.
	Max int
}

// A LatencyLimit is a [spillway.Policy] that bounds the requests in flight by a limit which an [Estimator] learns from
// latencies alone: a limiter without a CPU sensor, for where the CPU cannot be read or is never what is short. What such
// limits get wrong is in docs/algorithms.md; a [Shedder] does better wherever it can be used. A LatencyLimit is made by
// [NewLatencyLimit] and safe for concurrent use; it owns no goroutine.
//
// The Estimator sees the samples one at a time. When it is busy with one, others are left out: a request never waits for
// it, and at such a rate there are samples enough.
type LatencyLimit struct {
	limit   atomic.Int64
	refused stats.Counter
	inside  crowd
	least   float64
	most    float64

	mu        sync.Mutex // guards the rest
	estimator Estimator
	exact     float64
}

var errLatencyLimit = &spillway.Rejection{Policy: "latency limit", Reason: ReasonLimit}

// NewLatencyLimit returns a LatencyLimit with the given options; nil means the defaults. It returns an error that names the
// field that cannot be right.
func NewLatencyLimit(o *LatencyLimitOptions) (*LatencyLimit, error) {
	if o == nil {
		o = &LatencyLimitOptions{}
	}
	opts := *o
	setDefault(&opts.Min, DefaultLeastLimit)
	setDefault(&opts.Max, DefaultMostLimit)
	if opts.Initial == 0 {
		opts.Initial = min(max(DefaultInitial, opts.Min), opts.Max)
	}
	switch {
	case opts.Min < 1:
		return nil, fmt.Errorf("shedder: LatencyLimit: Min must be at least 1, got %d", opts.Min)
	case opts.Max < opts.Min:
		return nil, fmt.Errorf("shedder: LatencyLimit: Max must be at least Min, which is %d, got %d", opts.Min, opts.Max)
	case opts.Initial < opts.Min || opts.Initial > opts.Max:
		return nil, fmt.Errorf("shedder: LatencyLimit: Initial must be from Min to Max, which are %d and %d, got %d",
			opts.Min, opts.Max, opts.Initial)
	}
	switch e := opts.Estimator.(type) {
	case nil:
		opts.Estimator = &Gradient2{}
	case *Gradient2:
		if e.Tolerance != 0 && !(e.Tolerance >= 1) {
			return nil, fmt.Errorf("shedder: Gradient2: Tolerance must be at least 1, got %v", e.Tolerance)
		}
	case *AIMD:
		if e.Timeout < 0 {
			return nil, fmt.Errorf("shedder: AIMD: Timeout must not be negative, got %v", e.Timeout)
		}
	}
	l := &LatencyLimit{
		inside: newCrowd(), least: float64(opts.Min), most: float64(opts.Max),
		estimator: opts.Estimator, exact: float64(opts.Initial),
	}
	l.limit.Store(int64(opts.Initial))
	return l, nil
}

// Admit refuses r if as many requests as the limit are in flight.
func (l *LatencyLimit) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	at, ok := l.inside.enter(l.limit.Load())
	if !ok {
		l.refused.Add(1)
		return 0, errLatencyLimit
	}
	return spillway.Ticket(l.inside.size())<<cellBits | spillway.Ticket(at), nil
}

// Done ends a request that Admit admitted. A success or a drop teaches the Estimator.
func (l *LatencyLimit) Done(_ spillway.Request, t spillway.Ticket, res spillway.Result) {
	l.inside.leave(int(t & (1<<cellBits - 1)))
	dropped := res.Outcome == spillway.Dropped
	if res.Outcome != spillway.Success && !dropped || !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	s := Sample{Latency: res.Latency, InFlight: int(t >> cellBits), Dropped: dropped}
	if next := l.estimator.Step(l.exact, s); !math.IsNaN(next) {
		l.exact = min(max(next, l.least), l.most)
		l.limit.Store(int64(l.exact))
	}
}

// LatencyLimitStats is a snapshot of a [LatencyLimit].
type LatencyLimitStats struct {
	Limit    int64
	InFlight int64
	Refused  int64
}

// Stats returns a snapshot. It may be called at any time.
func (l *LatencyLimit) Stats() LatencyLimitStats {
	return LatencyLimitStats{Limit: l.limit.Load(), InFlight: l.inside.size(), Refused: l.refused.Value()}
}

var _ spillway.Policy = (*LatencyLimit)(nil)
