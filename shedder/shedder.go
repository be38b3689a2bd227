package shedder

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// tick is how often the sensors are looked at and the limit is steered.
const tick = 20 * time.Millisecond

const policyName = "shedder"

// The reasons of the [spillway.Rejection]s of a [Shedder].
const (
	ReasonLimit = "limit reached" // in flight > pass × rt
	ReasonPace  = "pace reached"  // requests come faster than they can be answered, and wait before they are seen
)

// A Shedder is a [spillway.Policy] that refuses what an overloaded service cannot carry. It is made by [New], safe for
// concurrent use, owns no goroutine and needs no Close: the requests themselves drive it.
type Shedder struct {
	base     atomic.Pointer[time.Time] // the first arrival: time is counted from it
	nextTick atomic.Int64              // ns after base
	limits   [numClasses]atomic.Int64  // greatest number in flight; MaxInt64 is none
	full     atomic.Pointer[spillway.Rejection]
	fast     atomic.Pointer[spillway.Rejection]
	windows  atomic.Pointer[windows]
	yields   atomic.Bool
	inside   crowd
	_        [64]byte // what a paced request writes stands on a cache line of its own
	pacer    pacer
	_        [24]byte
	refused  [numClasses]stats.Counter
	leak     leak

	mu      sync.Mutex // guards the rest; taken once a tick, never waited for by a request
	opts    Options
	control controller
	learner rtLearner
	rates   rates
	prober  prober
	seen    progress
	first   *windows // until the first tick knows where its buckets begin
	view    atomic.Pointer[Stats]
}

// The classes of priority.
const (
	sheddable = iota // below Normal
	normal
	critical // above Normal
	numClasses
)

// New returns a Shedder with the given options; nil means the defaults. It returns an error that names the field that
// cannot be right.
func New(o *Options) (*Shedder, error) {
	if o == nil {
		o = &Options{}
	}
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if opts.CPU == nil {
		if opts.CPU, err = stats.NewCPU(nil); err != nil {
			return nil, fmt.Errorf("shedder: %w", err)
		}
	}
	if opts.Sched == nil {
		sched := stats.SchedLatencyOptions{Interval: tick, Quantile: 0.9}
		if opts.Sched, err = stats.NewSchedLatency(&sched); err != nil {
			return nil, fmt.Errorf("shedder: %w", err)
		}
	}
	s := &Shedder{inside: newCrowd()}
	s.nextTick.Store(math.MinInt64)
	s.seen.running = 1
	s.view.Store(&Stats{QueueDelay: -1, CPUErr: stats.ErrNoReading, Limit: math.Inf(1), Pace: math.Inf(1)})
	if err := s.install(opts); err != nil {
		return nil, err
	}
	s.publish(free, 0, 0)
	return s, nil
}

// Admit refuses r if the service is overloaded and has more requests in flight than it can usefully work on, or takes
// them in faster. Priorities above [spillway.Normal] are refused last: half of the limit is added for them. Those below
// may fill only half of it. While it may refuse and goroutines wait for a processor, Admit yields it once after it has
// admitted, so that refusals do not wait for the work of the admitted.
func (s *Shedder) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	now, due := s.clock(r.Arrived)
	if due {
		now = s.refresh(r.Arrived)
	}
	class := classOf(r.Priority)
	most := s.limits[class].Load()
	at, ok := s.inside.enter(most)
	if !ok {
		if s.leak.passes(now) {
			s.inside.force(at)
			return spillway.Ticket(at), nil
		}
		s.refused[class].Add(1)
		return 0, s.full.Load()
	}
	cost, ok := s.pacer.take(now, class)
	if !ok {
		if s.leak.passes(now) {
			return spillway.Ticket(at), nil
		}
		s.inside.undo(at)
		s.refused[class].Add(1)
		return 0, s.fast.Load()
	}
	if s.yields.Load() {
		// Work that does not yield would keep those waiting who are about to be refused, and queue outside, where no limit sees it.
		runtime.Gosched()
	}
	return spillway.Ticket(cost)<<cellBits | spillway.Ticket(at), nil
}

// Done ends a request that Admit admitted. Only a success teaches the Shedder anything.
func (s *Shedder) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	at := int(t & (1<<cellBits - 1))
	if res.Outcome == spillway.Refused { // it never ran, and is not to be taken for one that ended
		s.inside.undo(at)
		s.pacer.giveBack(int64(t >> cellBits))
		return
	}
	s.inside.leave(at)
	if res.Outcome == spillway.Success {
		if w := s.windows.Load(); w != nil { // it is nil until the first tick has ended
			w.of[at].AddAfter(r.Arrived, res.Latency, int64(res.Latency))
		}
	}
}

func classOf(p spillway.Priority) int {
	switch {
	case p > spillway.Normal:
		return critical
	case p < spillway.Normal:
		return sheddable
	}
	return normal
}

// clock returns t in ns after the first arrival, and whether a tick is due.
func (s *Shedder) clock(t time.Time) (now int64, due bool) {
	base := s.base.Load()
	if base == nil {
		return 0, true
	}
	now = int64(t.Sub(*base))
	return now, now >= s.nextTick.Load()
}
