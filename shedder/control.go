package shedder

import (
	"math"
	"time"
)

// A Reason says why a [Shedder] holds the service to be overloaded.
type Reason uint8

// The reasons, in the order in which they are looked for.
const (
	Calm        Reason = iota // not overloaded
	CPUHigh                   // the smoothed CPU usage is at the threshold
	CPUStreak                 // several raw CPU samples in a row are at the threshold
	QueueDelay                // goroutines wait long for a processor
	Backlog                   // the CPU is short, and more requests are inside than can be answered in time
	SignalHigh                // one of Options.Signals is at its threshold; Stats.Signal names it
	Saturated                 // requests pile up inside though the CPU is idle, and more of them yield no more answers
	CoolingDown               // none of these any more; the limit stays until CoolDown has passed, then opens by a ramp
)

// String returns the name of r in lower case, fit for a metric label.
func (r Reason) String() string {
	switch r {
	case CPUHigh:
		return "cpu"
	case CPUStreak:
		return "cpu streak"
	case QueueDelay:
		return "queue delay"
	case Backlog:
		return "backlog"
	case Saturated:
		return "saturated"
	case SignalHigh:
		return "signal"
	case CoolingDown:
		return "cooling down"
	}
	return "calm"
}

// The constants of the control law. They were chosen by measurement on a real server (docs/algorithms.md).
const (
	enterShare   = 0.5   // of MaxDelay: waits of goroutines that mean overload
	targetShare  = 0.15  // of MaxDelay: waits of goroutines to steer by
	shortShare   = 0.01  // of MaxDelay: waits that together with a second sign mean that the CPU is short
	rushShare    = 0.015 // the least share of MaxDelay waited that says so together with a crowd
	rush         = 0.035 // what that share, times how many times more are inside than there is room for, has to reach
	paceMost     = 1.1   // the pace, as a share of the steady rate, while nothing waits
	paceLeast    = 0.5   // the pace however long goroutines wait
	paceSlope    = 0.1   // what each target of waiting takes from the pace
	squeezeFrom  = 0.97  // raw usage from which the allowance shrinks while refusing
	squeeze      = 0.85  // what a sample of such usage leaves of the allowance
	loosen       = 2.5   // what any other sample makes of it
	squeezeMost  = 0.18  // the least share of the allowance
	refusingSpan = 0.5   // seconds over which refusals are smoothed
	squeezeSeen  = 0.4   // the share to begin with when requests are seen to queue
	idleShare    = 0.1   // the share while saturated, if the CPU is known to idle: it needs nobody to go on with
	stuckUsage   = 0.6   // raw usage below which it is not the CPU that requests wait for
	stuckFull    = 0.8   // the share of the limit that has to be in use
	stuckTimes   = 3     // how many times more have to be inside than undisturbed
	rampRate     = 8.0   // how many times the limit grows in each second of the ramp that ends an overload
	rampEnd      = 16    // where the ramp ends
	waitBlend    = 0.5   // the weight of a new reading of the goroutines' waits

	stuckFor = 500 * time.Millisecond // how long all that has to hold
)

// A reading is what sensors and windows say at one tick.
type reading struct {
	now      time.Time
	cpu      float64 // raw usage, 0..1
	smoothed float64
	cpuKnown bool
	cpuFresh bool          // cpu is a sample that no earlier tick has seen
	wait     time.Duration // of goroutines for a processor; negative if unknown
	waitNew  bool          // wait is a reading that no earlier tick has seen
	pause    time.Duration // how long the CPU quota stops the process in a period; part of wait that nobody can help
	running  float64       // the share of the time that the quota leaves for running, (0, 1]
	pass     float64       // greatest rate of successes, per second; 0 if unknown
	steady   float64       // the same over half a second at least
	rt       float64       // undisturbed latency in ns; 0 if unknown
	refused  int64         // since the last tick
	inFlight int64
	gone     int64         // that were in flight and have ended, since the beginning
	answered int64         // successes up to the end of the last closed bucket, since the beginning
	upTo     time.Time     // the end of that bucket
	latency  time.Duration // mean of the last bucket with successes
	signal   string        // name of the first of Options.Signals that is at its threshold; "" if none is
}

// A verdict is what the controller wants of Admit.
type verdict struct {
	limit float64 // greatest number in flight; +Inf is none
	pace  float64 // greatest number of admissions per second; +Inf is none
}

var free = verdict{math.Inf(1), math.Inf(1)}

// A controller decides whether the service is overloaded, how many requests it may have in flight, and how many of them
// may enter per second. It is a pure state machine: one step a tick, no clock, no lock.
type controller struct {
	opts        Options
	overloaded  bool
	reason      Reason
	since       time.Time // since when overloaded is what it is
	lastTick    time.Time
	lastHigh    time.Time // the last reading that said overloaded
	lastRefused time.Time
	refusing    float64 // refusals per second, smoothed
	streak      int
	wait        float64 // of goroutines, blended, in ns
	paced       bool    // goroutines have waited too long: admissions are paced
	lastWaiting time.Time
	ramp        float64 // what the limit is multiplied by: 1, and more while opening
	share       float64 // of the allowance
	saturation  saturation
	stuckSince  time.Time // the last reading by which it was not stuck
	out         verdict
}

// step advances the controller to r.now and returns what Admit is to go by.
func (c *controller) step(r *reading) verdict {
	dt := r.now.Sub(c.lastTick).Seconds()
	c.lastTick = r.now
	if r.refused > 0 {
		c.lastRefused = r.now
	}
	if dt > 0 {
		c.refusing += (float64(r.refused)/dt - c.refusing) * -math.Expm1(-dt/refusingSpan)
	}
	c.observe(r)
	why := c.detect(r)
	if why == Calm && r.signal != "" {
		why = SignalHigh
	}
	c.saturate(r, why)
	if c.saturation.active {
		why = Saturated
	}
	if c.wait >= targetShare*float64(c.opts.MaxDelay) {
		c.lastWaiting = r.now
	} else if r.now.Sub(c.lastWaiting) >= c.opts.CoolDown {
		c.paced = false
	}
	switch {
	case why != Calm:
		if !c.overloaded {
			c.overloaded, c.since, c.share = true, r.now, 1
			if why != CPUHigh && why != CPUStreak {
				c.share = squeezeSeen
			}
		}
		c.reason, c.lastHigh, c.ramp = why, r.now, 1
	case c.overloaded:
		c.reason = CoolingDown
		if r.now.Sub(c.lastHigh) >= c.opts.CoolDown {
			c.ramp *= math.Pow(rampRate, dt)
			c.release(r)
		}
	}
	c.out = free
	if c.overloaded {
		c.squeeze(r)
		c.out = verdict{c.limit(r), c.pace(r)}
	}
	return c.out
}

// saturate looks for a saturation, or steers by the one that there is, unless the CPU is why the service is overloaded.
func (c *controller) saturate(r *reading, why Reason) {
	s := &c.saturation
	stuck := c.stuck(r)
	if why != Calm || c.opts.MaxDelay == Off {
		*s = saturation{kept: s.kept}
		return
	}
	was, limit := s.active, s.limit()
	switch {
	case was || !c.overloaded || c.ramp > 1:
		s.observe(r, c.room(r), r.now.Sub(c.lastRefused) < c.opts.CoolDown)
	case stuck:
		s.begin(r)
	default:
		*s = saturation{kept: s.kept}
	}
	switch {
	case s.active && !was:
		s.room = c.roomNow(r) // of the allowance that holds from now on
	case was && s.over:
		c.ramp = rampEnd
	case was && !s.active:
		c.ramp = math.Max(1, limit/c.roomNow(r)) // it goes on where it has been opened to
	}
}

// observe takes in what is not yet known of the CPU and of the goroutines' waits.
func (c *controller) observe(r *reading) {
	if r.cpuFresh {
		if r.cpu >= c.opts.CPUThreshold {
			c.streak++
		} else {
			c.streak = 0
		}
	}
	if r.waitNew {
		// What the process could not help says nothing about what it has to do.
		c.wait += waitBlend * (math.Max(0, float64(r.wait-r.pause)) - c.wait)
	}
	if r.wait < 0 {
		c.wait = 0
	}
}

// detect returns why r says that the service is overloaded, or Calm.
func (c *controller) detect(r *reading) Reason {
	delay := float64(c.opts.MaxDelay)
	waiting := c.opts.MaxDelay != Off && c.wait >= enterShare*delay
	// A pace that holds the waits near their target holds them below what started it.
	held := c.paced && c.wait >= targetShare*delay && r.now.Sub(c.lastRefused) < c.opts.CoolDown/2
	if waiting {
		c.paced = true
	}
	switch {
	case r.cpuKnown && c.opts.CPUThreshold != Off && r.smoothed >= c.opts.CPUThreshold:
		return CPUHigh
	case r.cpuKnown && c.opts.CPUThreshold != Off && c.opts.Streak != Off && c.streak >= c.opts.Streak:
		return CPUStreak
	case waiting, held:
		return QueueDelay
	case c.opts.MaxDelay != Off && c.short(r) && float64(r.inFlight) > c.room(r):
		return Backlog
	}
	return Calm
}

// short reports whether the CPU is what requests wait for: goroutines wait long, or a little with a full CPU, or with many
// more requests inside than there is room for: the more there are, the shorter the wait that will do.
func (c *controller) short(r *reading) bool {
	share := float64(r.wait) / float64(c.opts.MaxDelay)
	return share >= targetShare ||
		share >= shortShare && r.cpuKnown && c.opts.CPUThreshold != Off && r.cpu >= c.opts.CPUThreshold ||
		share >= rushShare && share*float64(r.inFlight) > rush*c.room(r)
}

// stuck reports whether the limit has been full for a while though the CPU has time to spare and goroutines do not wait for
// it: those inside wait for something else, and far longer than it used to take.
func (c *controller) stuck(r *reading) bool {
	idle := r.cpuKnown && r.cpu < stuckUsage && float64(r.wait) < rushShare*float64(c.opts.MaxDelay)
	full := c.overloaded && float64(r.inFlight) >= stuckFull*c.out.limit
	usual := r.steady * r.rt / 1e9 // by Little's law
	if !idle || !full || r.rt <= 0 || float64(r.inFlight) < math.Max(stuckTimes*usual, float64(c.opts.MinLimit)+1) {
		c.stuckSince = r.now
	}
	return r.now.Sub(c.stuckSince) >= stuckFor
}

// squeeze moves the allowance. A full CPU needs no requests beyond those that keep it full, and more of them only make each
// other slow; but a CPU that has time to spare while requests are refused was refused too much. So the way in is wide, and
// a service just below its capacity refuses next to nothing, while in a long overload the admitted are served fast.
func (c *controller) squeeze(r *reading) {
	switch {
	case !r.cpuFresh || c.saturation.active:
	case r.cpu >= squeezeFrom:
		c.share = math.Max(c.share*squeeze, c.squeezed(r))
	default:
		c.share = math.Min(c.share*loosen, 1)
	}
}

// squeezed returns the least share of the allowance. What it is for, that there is always a request to go on with, takes the
// fewer places the more come.
func (c *controller) squeezed(r *reading) float64 { return squeezeMost * math.Sqrt(2/c.excess(r)) }

// excess returns how many times more requests come than are answered, at least 1.
func (c *controller) excess(r *reading) float64 {
	if r.steady <= 0 {
		return 1
	}
	return 1 + c.refusing/r.steady
}

// release ends the overload when the ramp has reached its end, or when nothing has been refused for a while.
func (c *controller) release(r *reading) {
	if c.ramp >= rampEnd || r.now.Sub(c.lastRefused) >= c.opts.CoolDown/2 {
		c.overloaded, c.reason, c.since, c.paced = false, Calm, r.now, false
	}
}

// room returns pass × rt, by Little's law the number of requests that can usefully be inside, and what may be added to it:
// those that the service answers at its steady rate within the allowance. It is +Inf if that is not known.
func (c *controller) room(r *reading) float64 {
	if r.pass <= 0 || r.rt <= 0 {
		return math.Inf(1)
	}
	running := r.pass / r.running // what a quota stops works at the rate of the time in between
	return math.Max((running*r.rt+r.steady*c.allowance(r))/1e9, float64(c.opts.MinLimit))
}

// roomNow is room, or MinLimit while that is not known.
func (c *controller) roomNow(r *reading) float64 {
	if room := c.room(r); !math.IsInf(room, 1) {
		return room
	}
	return float64(c.opts.MinLimit)
}

// allowance returns how much may be added to rt, in ns.
func (c *controller) allowance(r *reading) float64 {
	if c.opts.MaxDelay == Off {
		return 0
	}
	share := 1.0
	switch {
	case c.saturation.active && r.cpuKnown:
		share = idleShare
	case c.saturation.active:
		share = squeezeSeen
	case c.overloaded:
		share = c.share
	}
	excess := c.excess(r)
	return share*float64(c.opts.MaxDelay) + float64(r.pause)/(excess*excess)
}

// limit returns the greatest number of requests in flight.
func (c *controller) limit(r *reading) float64 {
	room := c.roomNow(r)
	if c.saturation.active {
		room = c.saturation.limit()
	}
	return math.Min(room*c.ramp, float64(c.opts.MaxLimit))
}

// pace returns the greatest number of admissions per second. It is in force once goroutines have waited too long: requests
// then queue before they reach the Shedder, where a limit on those in flight cannot see them. The pace stays near the rate
// of which the service is known to be capable; the waits correct it in proportion, so that it cannot run away.
func (c *controller) pace(r *reading) float64 {
	if !c.paced || r.steady <= 0 {
		return math.Inf(1)
	}
	share := paceMost - paceSlope*c.wait/(targetShare*float64(c.opts.MaxDelay))
	return math.Max(r.steady*math.Max(share, paceLeast)*c.ramp, float64(c.opts.MinLimit))
}
