package shedder

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// progress is what earlier ticks have already seen.
type progress struct {
	cpu, sched time.Time // of the last samples
	bucket     time.Time // start of the last closed bucket
	rated      time.Time // when the rates were last computed
	pass       float64
	steady     float64
	answered   int64         // successes in closed buckets
	latency    time.Duration // mean of the last bucket with successes
	refused    int64
	pause      time.Duration
	running    float64
}

// refresh takes one tick on behalf of all requests: the one that finds it due pays for it, the others go on with the
// limit they find. It returns t in ns after the first arrival.
func (s *Shedder) refresh(t time.Time) (now int64) {
	if !s.mu.TryLock() {
		now, _ = s.clock(t)
		return now
	}
	changed, logger := s.takeTick(t)
	if changed && logger != nil {
		s.log(logger)
	}
	now, _ = s.clock(t)
	return now
}

// takeTick takes a step if one is due, and gives mu back whatever a sampler does.
func (s *Shedder) takeTick(t time.Time) (changed bool, logger *slog.Logger) {
	defer s.mu.Unlock()
	now, due := s.clock(t)
	if !due {
		return false, nil
	}
	if s.base.Load() == nil {
		base := t
		s.open(s.first, base)
		s.first = nil
		s.base.Store(&base)
		s.control.lastTick, s.control.since = t, t
		now = 0
	}
	s.nextTick.Store(now + int64(tick))
	return s.step(t), s.opts.Logger
}

// yieldFrom is how long goroutines have to wait for a processor until it is worth a yield that somebody may go first.
const yieldFrom = time.Millisecond

// step reads the sensors, advances the controller and publishes the limit. It is called with mu held, and reports whether
// the service became overloaded or calm.
func (s *Shedder) step(now time.Time) (changed bool) {
	cpu, sched := s.sampleCPU(now), s.sampleSched(now)
	was := s.control.overloaded
	r := reading{now: now, wait: -1, running: 1, inFlight: s.inside.size(), gone: s.inside.gone(), cpuKnown: cpu.Known()}
	if r.cpuKnown {
		r.cpu, r.smoothed = cpu.Usage, cpu.Smoothed
		s.seen.pause, s.seen.running = quotaPause(&cpu, s.seen.pause, s.seen.running)
		r.pause, r.running = s.seen.pause, s.seen.running
		r.cpuFresh = !cpu.Time.Equal(s.seen.cpu)
		s.seen.cpu = cpu.Time
	}
	if sched.Err == nil {
		r.wait = sched.Value
		r.waitNew = !sched.Time.Equal(s.seen.sched)
		s.seen.sched = sched.Time
	}
	refused := s.countRefused()
	r.refused, s.seen.refused = refused-s.seen.refused, refused
	if !was {
		s.learner.elapse(now.Sub(s.control.lastTick).Seconds())
	}
	s.learn(now, !was)
	r.pass, r.steady, r.rt = s.seen.pass, s.seen.steady, s.learner.least
	r.answered, r.latency = s.seen.answered, s.seen.latency
	r.upTo = s.seen.bucket.Add(s.windows.Load().span())
	var signalErr error
	r.signal, signalErr = readSignals(s.opts.Signals, now)
	dt := now.Sub(s.control.lastTick).Seconds()
	s.control.opts = s.opts
	s.control.opts.MaxDelay = s.opts.maxDelay(r.rt)
	v := s.control.step(&r)
	if s.opts.Disabled {
		v = free
	}
	s.publish(v, r.pause, s.prober.observe(&r, v.limit))
	s.yields.Store(!math.IsInf(v.limit, 1) && (r.wait < 0 || r.wait >= yieldFrom))
	share := s.leak.observe(dt, s.inside.came(), refused, s.opts.MaxShed)
	s.leak.set(share)
	s.snapshot(&r, Stats{CPUErr: cpu.Err, CPUSource: cpu.Source, SchedErr: sched.Err, SignalErr: signalErr, Leak: share})
	return s.control.overloaded != was
}

// learn looks at the window once per bucket: it feeds the closed buckets to the rt learner and computes the rates.
func (s *Shedder) learn(now time.Time, calm bool) {
	w := s.windows.Load()
	if since := now.Sub(s.seen.rated); since >= 0 && since < w.span() {
		return
	}
	s.seen.rated = now
	s.seen.pass, s.seen.steady = s.rates.greatest(w, now, func(b stats.Bucket) {
		if b.Start.After(s.seen.bucket) {
			s.seen.bucket = b.Start
			s.learner.add(b.Count, b.Sum, calm)
			s.seen.answered += b.Count
			if b.Count > 0 {
				s.seen.latency = time.Duration(b.Mean())
			}
		}
	})
}

// longestPeriod bounds what is taken for the period of a CPU quota: 100 ms is the default everywhere, and an idle process
// has fewer periods than time.
const longestPeriod = 100 * time.Millisecond

// leastRunning bounds what a quota is taken to leave: one that leaves less is no more than stop and go.
const leastRunning = 0.1

// quotaPause returns how long a CPU quota stops the process in one of its periods when it is used up, and the share of the
// time that it leaves; or what was known before if the sample does not say.
func quotaPause(cpu *stats.CPUSample, pause time.Duration, running float64) (time.Duration, float64) {
	if cpu.Periods == 0 {
		return pause, running
	}
	period := min(cpu.Span/time.Duration(cpu.Periods), longestPeriod)
	share := math.Min(cpu.Limit/float64(runtime.GOMAXPROCS(0)), 1)
	return time.Duration(float64(period) * (1 - share)), math.Max(share, leastRunning)
}

// publish makes v what Admit goes by, with a limit of at least least.
func (s *Shedder) publish(v verdict, pause time.Duration, least int64) {
	s.pacer.set(v.pace, pause)
	if !(v.limit < math.MaxInt32) { // nor does what is no number bar anybody
		for i := range s.limits {
			s.limits[i].Store(noLimit)
		}
		return
	}
	s.limits[sheddable].Store(max(1, int64(v.limit/2), least))
	s.limits[normal].Store(max(int64(v.limit), least))
	s.limits[critical].Store(max(int64(v.limit+math.Max(1, v.limit/2)), least))
}

func (s *Shedder) countRefused() int64 {
	var sum int64
	for i := range s.refused {
		sum += s.refused[i].Value()
	}
	return sum
}

func (s *Shedder) log(l *slog.Logger) {
	v := s.Stats()
	if v.Overloaded {
		l.Warn("shedder: overloaded", slog.String("reason", v.Why()), slog.Float64("limit", v.Limit),
			slog.Int64("in_flight", v.InFlight), slog.Float64("cpu", v.CPU), slog.Duration("queue_delay", v.QueueDelay))
		return
	}
	l.Info("shedder: calm again", slog.Int64("refused", v.Refused), slog.Int64("in_flight", v.InFlight))
}

// install puts opts in force. A window of another size starts empty; rt is kept. It is called with mu held, or before
// anyone else has s.
func (s *Shedder) install(opts Options) error {
	if s.windows.Load() == nil || opts.Window != s.opts.Window || opts.Buckets != s.opts.Buckets {
		w, err := newWindows(len(s.inside.cells), opts.Window, opts.Buckets)
		if err != nil {
			return fmt.Errorf("shedder: %w", err)
		}
		if base := s.base.Load(); base != nil {
			s.open(w, *base)
		} else {
			s.first = w
		}
		s.seen.bucket, s.seen.rated = time.Time{}, time.Time{}
	}
	s.opts = opts
	s.full.Store(&spillway.Rejection{Policy: policyName, Reason: ReasonLimit, RetryAfter: opts.CoolDown})
	s.fast.Store(&spillway.Rejection{Policy: policyName, Reason: ReasonPace, RetryAfter: opts.CoolDown})
	return nil
}

// open lets w take in successes. Its buckets begin at base.
func (s *Shedder) open(w *windows, base time.Time) {
	w.anchor(base)
	s.windows.Store(w)
}

var _ spillway.Policy = (*Shedder)(nil)
