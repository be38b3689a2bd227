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
	"github.com/spillway-go/spillway/internal/inflight"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/internal/splitmix"
	"github.com/spillway-go/spillway/shedder/internal/law"
	"github.com/spillway-go/spillway/shedder/internal/level"
	"github.com/spillway-go/spillway/stats"
)

// tick is how often the sensors are read and the limit is steered.
const tick = 20 * time.Millisecond

// The reasons of the [spillway.Rejection]s of a [Shedder].
const (
	reasonLimit = "limit reached"         // the requests in flight have reached the number that the service can answer in time
	reasonDrop  = "cpu queue"             // requests wait for a processor before the Shedder sees them, so a share is refused
	reasonShare = "over fair share"       // the key sends more than its fair share, and other keys need theirs
	reasonRoute = "route over fair share" // the route needs more than its fair share of the busy time, and other routes need theirs
	// The others are of requests that wait: rejections.Full, Wait, Deadline and Ousted.
)

// A Shedder is a [spillway.Policy] that refuses requests that an overloaded service cannot handle. It is made by [New],
// safe for concurrent use, owns no goroutine and needs no Close: the requests themselves drive it.
type Shedder struct {
	base     atomic.Pointer[time.Time] // the first arrival: time is counted from it
	nextTick atomic.Int64              // ns after base
	levels   level.State
	yields   atomic.Bool
	quick    atomic.Int64 // ns: an answer that took less did not wait in a queue
	refusals [numReasons]atomic.Pointer[spillway.Rejection]
	inside   inflight.Counter
	queue    *queue // nil if no request may wait
	failed   stats.Counter
	refused  [numClasses][numReasons]stats.Counter
	leak     leak

	mu      sync.Mutex // guards the rest; taken once a tick, never waited for by a request
	opts    Options
	law     *law.Law
	demand  demand // guarded by mu
	prober  prober
	witness witness
	seen    progress
	view    atomic.Pointer[Stats]

	admitted [numClasses]stats.Counter // not guarded; without normal, which is what is left of all
}

// The classes of priority.
const (
	sheddable = iota // below Normal
	normal
	critical // above Normal
	numClasses
)

// The places of the reasons in counts of refusals.
const (
	byLimit = iota
	byDrop
	byShare
	byRoute
	byFull
	byWait
	byDeadline
	byOusted
	numReasons
)

var refusalReasons = [numReasons]string{
	byLimit: reasonLimit, byDrop: reasonDrop, byShare: reasonShare, byRoute: reasonRoute,
	byFull: rejections.Full, byWait: rejections.Wait, byDeadline: rejections.Deadline, byOusted: rejections.Ousted,
}

// New returns a Shedder with the given options; nil means the defaults. It returns an error that names the invalid
// field.
func New(o *Options) (*Shedder, error) { return newShedder(o, law.Default()) }

// NewVariant is New with other values of named constants of the law, such as "Near". It is for studies of the law
// itself, such as examples/simulate -ablate. Names and values may change in any version.
func NewVariant(o *Options, constants map[string]float64) (*Shedder, error) {
	p, err := law.Default().With(constants)
	if err != nil {
		return nil, err
	}
	return newShedder(o, p)
}

func newShedder(o *Options, p law.Params) (*Shedder, error) {
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
	s := &Shedder{inside: inflight.New(), law: law.New(p), queue: newQueue(&opts)}
	s.nextTick.Store(math.MinInt64)
	s.view.Store(&Stats{QueueDelay: -1, CPUErr: stats.ErrNoReading, Limit: math.Inf(1), FairShare: math.Inf(1), RouteShare: math.Inf(1)})
	s.install(opts)
	s.publish(law.Verdict{Limit: math.Inf(1)}, &law.Reading{}, 0, time.Time{})
	return s, nil
}

// Admit refuses r if the requests in flight have reached the number that the service can answer in time. If the service
// cannot carry all requests, those of a low [spillway.Priority] are refused first. Among requests of one priority, each
// key gets its fair share; keys that send little take turns by [Options.Rotation]. A priority uses all that the higher
// ones leave, and a key all that other keys leave. A refusal to a key that sends more than its share while others send
// less has the reason "over fair share" and sets [spillway.Rejection.OverQuota]. [Options.FairRoutes] adds shares of routes.
//
// With [Options.MaxQueue], Admit may block: requests that find no room wait for it, as long as their turn is expected to
// come in time. It returns ctx.Err() if ctx ends meanwhile.
//
// While goroutines wait for a processor, Admit yields the processor once after it has admitted r, so that refusals do
// not wait for the work of admitted requests.
func (s *Shedder) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	now, due := s.clock(r.Arrived)
	if due {
		now = s.refresh(r.Arrived)
		s.serve(now, 0)
	}
	class := classOf(r.Priority)
	a := s.levels.Ask(&r, now)
	if a.Dropped && !s.leak.passes(now) {
		return 0, s.refuse(&r, now, byDrop, a)
	}
	waits := s.queue != nil
	if waits && !a.Fits && s.queue.blocks(r.Priority) {
		return s.wait(ctx, &r, now, a)
	}
	at, ok := s.inside.Enter(a.Limit)
	switch {
	case !ok && waits:
		return s.wait(ctx, &r, now, a)
	case !ok:
		return s.turnAway(&r, byLimit, now, a)
	}
	s.entered(class)
	return spillway.Ticket(at), nil
}

// entered counts an admitted request.
func (s *Shedder) entered(class int) {
	if class != normal {
		s.admitted[class].Add(1)
	}
	if s.yields.Load() {
		// Without the yield, refusals would wait behind admitted work, in a queue that no limit sees.
		runtime.Gosched()
	}
}

// refuse counts a refusal and returns it. A key or a route that is over its share is refused for that.
func (s *Shedder) refuse(r *spillway.Request, now int64, why int, a level.Answer) *spillway.Rejection {
	s.levels.Refuse(r, now)
	switch {
	case why == byDeadline:
	case a.Over == level.OfKey:
		why = byShare
	case a.Over == level.OfRoute:
		why = byRoute
	}
	s.refused[classOf(r.Priority)][why].Add(1)
	return s.refusals[why].Load()
}

// Done ends a request that Admit admitted. Only answers, successes and failures, teach the Shedder anything.
func (s *Shedder) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	at, latency := int(t%inflight.Cells), res.Latency
	if waited := time.Duration(t >> inflight.CellBits); waited > 0 { // the wait is no latency
		latency = max(latency-waited, 0)
	}
	if res.Outcome == spillway.Refused { // it never ran
		s.undo(&r, at)
	} else {
		s.end(&r, at, res.Outcome, latency)
	}
	if s.queue != nil && s.queue.waiting.Load() > 0 {
		now, _ := s.clock(r.Arrived.Add(res.Latency))
		var ran int64
		if res.Outcome != spillway.Refused {
			ran = 1
		}
		s.serve(now, ran)
	}
}

// end ends a request that ran.
func (s *Shedder) end(r *spillway.Request, at int, o spillway.Outcome, latency time.Duration) {
	if s.levels.Learns(r) {
		now, _ := s.clock(r.Arrived)
		s.levels.Done(r, now, &spillway.Result{Outcome: o, Latency: latency})
	}
	switch o {
	case spillway.Success:
		s.inside.Answer(at, latency, int64(latency) < s.quick.Load())
	case spillway.Failure:
		s.failed.Add(1)
		s.inside.Leave(at)
	default:
		s.inside.Leave(at)
	}
}

// undo ends a request that never ran.
func (s *Shedder) undo(r *spillway.Request, at int) {
	if class := classOf(r.Priority); class != normal {
		s.admitted[class].Add(-1)
	}
	s.inside.Undo(at)
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

// odds pick a random share of the requests. The time of arrival decides, so nothing is written.
type odds struct{ of atomic.Uint64 } // of 2^64

func (o *odds) set(share float64) { o.of.Store(uint64(min(max(share, 0), 1-0x1p-53)*(1<<63)) << 1) }

func (o *odds) hit(now int64) bool {
	odds := o.of.Load()
	return odds != 0 && splitmix.Mix(uint64(now)+splitmix.Gamma) < odds
}

var _ spillway.Policy = (*Shedder)(nil)
