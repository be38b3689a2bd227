package adaptive

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/inflight"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/stats"
)

// A Limit is a [spillway.Policy] that bounds the requests in flight by a limit that an [Estimator] learns from their
// latency. It is made by [New], safe for concurrent use, and owns no goroutine. The zero Limit refuses every request.
//
// The Estimator sees the samples one at a time. A sample that comes while it is busy is dropped. So a request never
// waits for it, and at such rates there are enough samples.
type Limit struct {
	limit    atomic.Int64
	baseline atomic.Int64 // ns
	ceiling  atomic.Int64 // ns
	refused  stats.Counter
	inside   inflight.Counter
	full     *spillway.Rejection // nil in the zero Limit

	mu      sync.Mutex // guards the rest
	opts    Options
	own     bool    // New or Tune made the Estimator
	exact   float64 // the limit
	healthy healthy
}

// errZero is the answer of the zero Limit.
var errZero = &spillway.Rejection{Policy: "adaptive", Reason: rejections.Limit}

// New returns a Limit with the given options; nil means the defaults. It returns an error that names the invalid field.
func New(o *Options) (*Limit, error) {
	if o == nil {
		o = &Options{}
	}
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if opts.Initial < opts.Min || opts.Initial > opts.Max {
		return nil, fmt.Errorf("adaptive: Initial must be from Min to Max, which are %d and %d, got %d", opts.Min, opts.Max, opts.Initial)
	}
	l := &Limit{
		inside: inflight.New(), exact: float64(opts.Initial),
		full: &spillway.Rejection{Policy: opts.Name, Reason: rejections.Limit},
	}
	l.install(opts, o.Estimator == nil)
	return l, nil
}

// install applies valid options. Except in New, the caller holds l.mu.
func (l *Limit) install(opts Options, own bool) {
	l.opts, l.own = opts, own
	l.ceiling.Store(int64(l.healthy.ceiling(&opts)))
	l.move(l.exact)
}

// move clamps a limit to the bounds and publishes it, with the baseline that it comes from.
func (l *Limit) move(limit float64) {
	l.exact = min(max(limit, float64(l.opts.Min)), float64(l.opts.Max))
	l.limit.Store(int64(l.exact))
	var baseline time.Duration
	if e, ok := l.opts.Estimator.(baseliner); ok {
		baseline = e.Baseline()
	}
	l.baseline.Store(int64(baseline))
}

// Admit refuses r if the requests in flight have reached the limit, by a shared *[spillway.Rejection] with the reason
// "limit reached" and a RetryAfter of 0.
func (l *Limit) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	at, ok := l.inside.Enter(l.limit.Load())
	if !ok {
		l.refused.Add(1)
		if l.full == nil {
			return 0, errZero
		}
		return 0, l.full
	}
	return spillway.Ticket(l.inside.Size())<<inflight.CellBits | spillway.Ticket(at), nil
}

// Done ends a request that Admit admitted. A success or a drop teaches the Estimator.
func (l *Limit) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	l.inside.Leave(int(t & (inflight.Cells - 1)))
	dropped := res.Outcome == spillway.Dropped
	if res.Outcome != spillway.Success && !dropped || !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	if !dropped {
		l.healthy.add(r.Arrived.Add(res.Latency), res.Latency, l.opts.MaxRise)
	}
	s := Sample{
		Latency: res.Latency, InFlight: int(t >> inflight.CellBits), Dropped: dropped, Ceiling: l.healthy.ceiling(&l.opts),
	}
	l.ceiling.Store(int64(s.Ceiling))
	if next := l.opts.Estimator.Step(l.exact, s); !math.IsNaN(next) {
		l.move(next)
	}
}

// Stats is a snapshot of a [Limit].
type Stats struct {
	Name     string // Options.Name
	Limit    int64  // greatest number of requests in flight
	InFlight int64
	Admitted int64 // requests admitted since New
	Refused  int64 // requests refused since New: the sum of ByReason
	ByReason []spillway.Refusal
	// Baseline is the latency that the Estimator considers healthy; 0 if it is not known yet, or if the Estimator has
	// none.
	Baseline time.Duration
	// Ceiling is the longest latency that Baseline may rise to; 0 if there is no bound, as in the first seconds.
	Ceiling time.Duration
}

// Stats returns a snapshot. It may be called at any time and does not wait for the Estimator.
func (l *Limit) Stats() Stats {
	s := Stats{
		Name: l.name(), Limit: l.limit.Load(), Refused: l.refused.Value(),
		Baseline: time.Duration(l.baseline.Load()), Ceiling: time.Duration(l.ceiling.Load()),
	}
	s.InFlight, s.Admitted = l.inside.Totals()
	if s.Refused > 0 {
		s.ByReason = []spillway.Refusal{{Policy: s.Name, Reason: rejections.Limit, Count: s.Refused}}
	}
	return s
}

func (l *Limit) name() string {
	if l.full == nil {
		return ""
	}
	return l.full.Policy
}

var _ spillway.Policy = (*Limit)(nil)
