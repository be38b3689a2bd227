package shedder

import (
	"math"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder/internal/law"
	"github.com/spillway-go/spillway/shedder/internal/level"
	"github.com/spillway-go/spillway/stats"
)

// progress holds the counts that earlier ticks have already seen.
type progress struct {
	at         time.Time // of the last tick
	cpu, sched time.Time // of the last samples
	entered    int64
	gone       int64
	refused    int64
	failed     int64
	turned     int64
	pause      time.Duration
	since      time.Time // of the present state
}

// refresh takes one tick on behalf of all requests. The request that finds the tick due does the work; the others use
// the current limit. It returns t in ns after the first arrival.
func (s *Shedder) refresh(t time.Time) (now int64) {
	if !s.mu.TryLock() {
		now, _ = s.clock(t)
		return now
	}
	s.takeTick(t)
	now, _ = s.clock(t)
	return now
}

// takeTick takes a step if one is due. It releases mu even if a sampler panics.
func (s *Shedder) takeTick(t time.Time) {
	defer s.mu.Unlock()
	now, due := s.clock(t)
	if !due {
		return
	}
	if s.base.Load() == nil {
		base := t
		s.base.Store(&base)
		s.seen.at, s.seen.since = t, t
		if s.queue != nil {
			s.queue.seed(uint64(t.UnixNano()))
		}
		now = 0
	}
	s.nextTick.Store(now + int64(tick))
	s.step(t)
}

// yieldFrom is the wait for a processor from which on a yield is worth its cost.
const yieldFrom = time.Millisecond

// step reads the sensors, advances the law and publishes the limit. It is called with mu held.
func (s *Shedder) step(now time.Time) {
	r := law.Reading{Dt: math.Max(0, now.Sub(s.seen.at).Seconds())}
	s.seen.at = now
	cpu, sched := s.sampleCPU(now), s.sampleSched(now)
	s.readSensors(&r, &cpu, &sched)
	inside, entered := s.inside.Totals()
	refused, gone := s.countRefused(), entered-inside
	r.InFlight = float64(inside)
	r.Admitted, r.Left, r.Refused = float64(entered-s.seen.entered), float64(gone-s.seen.gone), float64(refused-s.seen.refused)
	answered, quick, latency := s.inside.Answers()
	failed := s.failed.Value()
	r.Answered, r.Latency, r.Quick = float64(answered), latency, float64(quick)
	r.Ended = r.Answered + float64(failed-s.seen.failed)
	s.seen.entered, s.seen.gone, s.seen.refused, s.seen.failed = entered, gone, refused, failed
	signal, signalErr := readSignals(s.opts.Signals, now)
	r.Signal = signal != ""
	if sched.Err == nil && s.witness.doubts(&r, s.law.Latency()) {
		sched.Err = ErrImplausible
	}

	turnedAway := r.Refused
	r.Refused += s.countTurned() // to the law, requests that wait are refused: they found no room
	r.Mix, r.RefusedMix = s.levels.Mix()
	v := s.law.Step(&r)
	r.Refused = turnedAway
	if s.opts.Disabled {
		v = law.Verdict{Limit: math.Inf(1)}
	}
	least := s.prober.observe(now, gone, float64(inside), v.Limit, s.law.Latency())
	s.publish(v, &r, least, now)
	s.yields.Store(s.witness.asks || !math.IsInf(v.Limit, 1) && (sched.Err != nil || sched.Value >= yieldFrom))
	advice := s.levels.Advice()
	leaking := s.leak.observe(r.Dt, entered, refused, s.opts.MaxShed)
	s.leak.set(leaking)
	s.snapshot(&r, v, Stats{
		Time: now, CPUErr: cpu.Err, CPUSource: cpu.Source, SchedErr: sched.Err, Signal: signal, SignalErr: signalErr, Leak: leaking,
		Demand: s.demand.observe(&r, &cpu, v, s.opts.CPUThreshold), HoldBack: advice.Reduce, HoldBackAt: spillway.Priority(advice.Priority),
	})
}

// readSensors fills r with the readings of the sensors.
func (s *Shedder) readSensors(r *law.Reading, cpu *stats.CPUSample, sched *stats.SchedSample) {
	r.Running, r.CPUKnown = 1, known(cpu)
	if r.CPUKnown {
		r.CPU, r.Smoothed, r.CPUs = cpu.Usage, cpu.Smoothed, cpu.Limit
		r.CPUFresh = !cpu.Time.Equal(s.seen.cpu)
		s.seen.cpu = cpu.Time
		pause, running := quotaPause(cpu)
		s.seen.pause = pause
		r.Pause, r.Running = pause.Seconds(), running
	}
	if sched.Err == nil {
		r.Wait = sched.Value.Seconds()
		r.WaitFresh = !sched.Time.Equal(s.seen.sched)
		s.seen.sched = sched.Time
	}
}

// leastRunning is the least share of the time that a quota is assumed to leave; below it the process mostly stands
// still.
const leastRunning = 0.1

// quotaPause returns how long a CPU quota stops the process in a period in which it is used up, and the share of the time
// that it leaves. A quota that stopped nothing since the last sample leaves all of it.
func quotaPause(cpu *stats.CPUSample) (time.Duration, float64) {
	if cpu.ThrottledPeriods == 0 {
		return 0, 1
	}
	period := cpu.Period
	if period <= 0 {
		period = cpu.Span / time.Duration(max(cpu.Periods, 1))
	}
	pause := time.Duration(float64(period) * (1 - math.Min(cpu.Limit/float64(max(cpu.Procs, 1)), 1)))
	if t := cpu.Throttled / time.Duration(cpu.ThrottledPeriods); t > 0 {
		pause = min(pause, t) // with several processors, the kernel counts the pauses of all of them
	}
	return pause, math.Max(1-float64(pause)/float64(period), leastRunning)
}

// asEver is the mean latency, as a multiple of that of the calm service, up to which requests do not wait for each other
// more than usual.
const asEver = 1.5

// publish makes v the state that Admit uses, with a limit of at least least.
func (s *Shedder) publish(v law.Verdict, r *law.Reading, least int64, now time.Time) {
	s.quick.Store(int64(v.Quick * 1e9))
	var rotation uint64
	if every := s.opts.Rotation; every > 0 {
		rotation = uint64(now.UnixNano() / int64(every))
	}
	s.levels.Step(&level.Tick{
		Dt: r.Dt, Admitted: r.Admitted, Refused: r.Refused, Left: r.Left, InFlight: r.InFlight, Limit: v.Limit, Drop: v.Drop,
		Most: s.opts.lawOptions().MaxLimit,
		Calm: r.Answered > 0 && r.Latency <= asEver*r.Answered*s.law.Latency().Seconds(), Rotation: rotation, Seed: uint64(now.UnixNano()),
	}, max(least, int64(s.opts.MinLimit)))
}

func (s *Shedder) countRefused() int64 {
	var sum int64
	for class := range s.refused {
		sum += s.refusedOf(class)
	}
	return sum
}

// countTurned returns the requests that have begun to wait since the last tick.
func (s *Shedder) countTurned() float64 {
	if s.queue == nil {
		return 0
	}
	turned := s.queue.turned.Value()
	n := turned - s.seen.turned
	s.seen.turned = turned
	return float64(n)
}

func (s *Shedder) refusedOf(class int) (sum int64) {
	for why := range s.refused[class] {
		sum += s.refused[class][why].Value()
	}
	return sum
}

// install applies opts. It is called with mu held, or before s is shared.
func (s *Shedder) install(opts Options) {
	s.opts = opts
	s.law.Tune(opts.lawOptions())
	for why, reason := range refusalReasons {
		s.refusals[why].Store(&spillway.Rejection{
			Policy: opts.Name, Reason: reason, RetryAfter: opts.CoolDown, OverQuota: why == byShare, TooLate: why == byDeadline,
		})
	}
	s.levels.Weigh(opts.Weights)
	s.levels.ShareByRoute(opts.FairRoutes)
	if s.queue != nil {
		s.queue.tune(&opts)
	}
}
