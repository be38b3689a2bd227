package overload

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	lightLoad    = 0.5             // load before each step, as a multiple of the capacity
	capacityWarm = time.Second     // before the capacity is counted
	capacityTime = 3 * time.Second // while it is counted
	recheckTime  = 2 * time.Second // when it is counted again at the end
	healthyShare = 0.8             // share of the light load that must be answered in time before the next step begins
)

// A runner carries out one Run.
type runner struct {
	config   *Config
	opts     *options
	work     Work
	progress *progress
	group    *Cgroup
	perMilli float64
	capacity float64
}

// duration is how long the run will take if every server but the bare one recovers.
func (r *runner) duration() time.Duration {
	var total time.Duration
	if r.work.Capacity == 0 {
		total += capacityWarm + r.opts.capacityTime
		if r.opts.Recheck {
			total += capacityWarm + recheckTime
		}
	}
	for _, guard := range r.opts.Guards {
		total += r.work.Deadline
		for i := range r.opts.Loads {
			total += r.opts.Each
			if r.settles(i) {
				total += r.opts.Settle
			}
			if guard == "none" && r.settles(i) && i > 0 && r.opts.Loads[i-1] > 1 {
				total += r.work.Deadline + r.opts.Settle // it will not have recovered
			}
		}
	}
	return total.Round(time.Second)
}

// settles reports whether the light load must run before the i-th load: before a step up, unless the light load
// precedes it anyway. A storm must run to its end, so then the light load comes only before the first load.
func (r *runner) settles(i int) bool {
	loads := r.opts.Loads
	return r.opts.Settle > 0 && loads[i] > lightLoad && (i == 0 || loads[i-1] > lightLoad && r.opts.Shape != Storm)
}

// capacityOf measures the bare server in a separate process, unless the work sets its capacity.
func (r *runner) capacityOf(ctx context.Context, d time.Duration) (float64, error) {
	if r.work.Capacity > 0 {
		return r.work.Capacity, ctx.Err()
	}
	p, err := r.start(ctx, "none")
	if err != nil {
		return 0, err
	}
	defer p.stop()
	c, err := r.config.transport().NewClient(p.ready.Addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return ClosedLoop(ctx, c.Do, r.work.Workers, capacityWarm, d), ctx.Err()
}

func (r *runner) start(ctx context.Context, guard string) (*process, error) {
	p, err := startProcess(ctx, childOrders{Guard: guard, Work: r.opts.Work, PerMilli: r.perMilli, Capacity: r.capacity, Live: r.opts.live}, r.group)
	if err == nil {
		r.perMilli = p.ready.PerMilli // the first server measures it for all others
	}
	return p, err
}

// A guardRun is the run of one guard through all loads.
type guardRun struct {
	*runner
	guard     string
	rng       *rand.Rand
	base      time.Time
	now       time.Duration // where the schedule stands
	process   *process
	gen       *generator
	ended     []ServerSample // of servers that have been replaced
	again     []sample       // requests sent once more
	stretches []*stretch
}

func (r *runner) guard(ctx context.Context, name string) ([]Result, Series, error) {
	g := &guardRun{runner: r, guard: name, rng: rand.New(rand.NewPCG(r.opts.Seed, 1))}
	g.base = time.Now()
	if err := g.fresh(ctx); err != nil {
		return nil, Series{}, err
	}
	defer func() { g.retire() }()
	for i, load := range r.opts.Loads {
		fresh, err := g.settle(ctx, i)
		if err != nil {
			return nil, Series{}, err
		}
		g.stretch(ctx, load, r.opts.Each, Span{Fresh: fresh})
	}
	g.retire()
	results, series := g.reduce()
	return results, series, ctx.Err()
}

// fresh replaces the server with a new one. The clock continues.
func (g *guardRun) fresh(ctx context.Context) error {
	g.retire()
	p, err := g.start(ctx, g.guard)
	if err != nil {
		return err
	}
	client, err := g.config.transport().NewClient(p.ready.Addr)
	if err != nil {
		p.stop()
		return err
	}
	g.process = p
	g.gen = &generator{client: client, base: g.base, slo: g.work.SLO, deadline: g.work.Deadline, tries: g.opts.Shape.tries()}
	g.now = time.Since(g.base)
	return nil
}

func (g *guardRun) retire() {
	if g.process == nil {
		return
	}
	g.gen.wait()
	g.again = append(g.again, g.gen.again...)
	g.gen.client.Close()
	g.process.stop()
	g.ended = append(g.ended, g.process.since(g.base)...)
	g.process = nil
}

// settle lets the server run at the light load before a step up. If the server does not recover, a new one replaces it,
// so that each step is measured without effects of the step before.
func (g *guardRun) settle(ctx context.Context, i int) (fresh bool, err error) {
	d := g.opts.Settle
	if !g.settles(i) {
		return false, nil
	}
	if i == 0 {
		g.light(ctx, d)
		return false, nil
	}
	if g.light(ctx, d) >= healthyShare {
		return false, nil
	}
	if err := g.fresh(ctx); err != nil {
		return true, err
	}
	g.light(ctx, d)
	return true, ctx.Err()
}

// light runs the light load for d and returns the share of its last half that was answered in time.
func (g *guardRun) light(ctx context.Context, d time.Duration) float64 {
	g.stretch(ctx, lightLoad, d/2, Span{Settle: true})
	last, due := g.stretch(ctx, lightLoad, d-d/2, Span{Settle: true})
	return last.inTime(due)
}

// stretch runs one constant load for d. It returns the results so far, and the requests that should have been answered
// by then: those sent longer than the SLO ago.
func (g *guardRun) stretch(ctx context.Context, load float64, d time.Duration, span Span) (sofar counts, due int) {
	from, to := g.now, g.now+d
	g.now = to
	span.Load, span.Start, span.End = load, from.Seconds(), to.Seconds()
	shape := g.opts.Shape
	if span.Settle {
		shape = Step
	}
	times := shape.arrivals(g.rng, load, g.capacity, d)
	t := &tally{}
	stop := g.progress.watch(g, span, t)
	samples := g.gen.run(ctx, from, times, t)
	sleepUntil(ctx, g.base.Add(to))
	stop()
	g.stretches = append(g.stretches, &stretch{Span: span, from: from, to: to, samples: samples})
	due, _ = slices.BinarySearch(times, d-g.work.SLO)
	return t.read(), due
}

// reduce turns the records into figures. It must run after the last request has ended.
func (g *guardRun) reduce() ([]Result, Series) {
	g.sortIn()
	series := Series{Guard: g.guard, Server: g.ended, stretches: g.stretches}
	var (
		results []Result
		all     []sample
		before  *time.Duration
	)
	for i, l := range g.stretches {
		series.Spans = append(series.Spans, l.Span)
		all = append(all, l.samples...)
		if l.Settle {
			continue
		}
		res := l.result(g.guard, g.capacity)
		if l.Load <= lightLoad && before == nil && res.P99All != nil {
			before = Known(time.Duration(*res.P99All * float64(time.Millisecond)))
		}
		if before != nil && l.Load > 1 {
			if rest := g.restAfter(i); rest != nil {
				res.Recovered = rest.recovered(*before)
			}
		}
		results = append(results, res)
	}
	series.Points = points(all, g.now)
	return results, series
}

// restAfter joins the stretches of light load that followed stretch i on the same server.
func (g *guardRun) restAfter(i int) *stretch {
	var rest *stretch
	for _, l := range g.stretches[i+1:] {
		if l.Load > lightLoad || rest != nil && l.from != rest.to {
			break
		}
		if rest == nil {
			rest = &stretch{from: l.from}
		}
		rest.to = l.to
		rest.samples = append(rest.samples, l.samples...)
	}
	return rest
}

// sortIn puts retried requests into the stretches in which they were sent again.
func (g *guardRun) sortIn() {
	if len(g.again) == 0 {
		return
	}
	for _, l := range g.stretches {
		for _, s := range g.again {
			if s.at >= l.from && s.at < l.to {
				l.samples = append(l.samples, s)
			}
		}
		slices.SortStableFunc(l.samples, func(a, b sample) int { return cmp.Compare(a.at, b.at) })
	}
}
