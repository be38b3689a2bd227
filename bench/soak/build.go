package main

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shadow"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

const (
	keysOfServer  = 300 // keys in use; fewer fit into the tables
	keysWatched   = 40  // keys whose admitted requests are checked
	dependencies  = 24
	capacity      = 62.5 // requests per second that the processors of the server can answer
	cpuPerRequest = 32 * time.Millisecond
)

func keyName(i int) string { return "tenant-" + strconv.Itoa(i) }

// build makes the gates: one of the server, one of rates and windows, one in front of dependencies, one with queues.
func (w *world) build() {
	w.gate("server", w.shadow(), w.keyedBucket(), w.bucket("bucket", 80, 100), w.calendar(), w.concurrency(), w.warmUp(), w.shedder())
	w.gate("rates", w.slidingWindow(), w.slidingLog(), w.fixedWindow(), w.bucket("policer", 40, 60), w.keyedWindow(), w.xtime(), w.perKey())
	w.gate("client", w.adaptive("gradient2", nil), w.adaptive("aimd", &adaptive.AIMD{Timeout: time.Second}), w.throttle("throttle"),
		w.breakers(), w.breaker())
	w.queues = w.newQueueLane()
	w.budget = w.newBudget()
	w.direct()
}

// probe puts a policy into the books.
func (w *world) probe(name string, p spillway.Policy) *probe {
	b := &probe{Policy: p, w: w, name: name, refused: map[string]int64{}, keys: map[string]int64{}}
	w.probes = append(w.probes, b)
	return b
}

// gate makes a gate of the policies and a faulty one, and adds it to the books.
func (w *world) gate(name string, policies ...spillway.Policy) *gateBook {
	g := &gateBook{w: w, name: name, gate: spillway.New(append(policies, faulty{w})...), refused: map[refusal]int64{}}
	w.gates = append(w.gates, g)
	return g
}

// tune calls f from time to time to change the options of a policy.
func (w *world) tune(name string, f func() error) {
	w.tunes = append(w.tunes, func() {
		w.tuned++
		if err := f(); err != nil {
			w.violate(name, "valid options expected, got %v", err)
		}
	})
}

// within reports a figure outside its possible range.
func (w *world) within(name, what string, got, least, most float64) {
	if !(got >= least && got <= most) {
		w.violate(name, "%s: %v to %v expected, it says %v", what, least, most, got)
	}
}

// draw returns a random number in [0, 1), for options.
func (w *world) draw() float64 { return w.tuning.Float64() }

// intBetween returns a number from least to most, both included.
func (w *world) intBetween(least, most int) int { return least + w.tuning.IntN(most-least+1) }

// pick returns one of the values.
func pick[T any](w *world, values ...T) T { return values[w.tuning.IntN(len(values))] }

func (w *world) shedder() spillway.Policy {
	o := shedder.Options{
		CPU: spillway.Must(stats.NewCPU(&stats.CPUOptions{Source: w.server})),
		Sched: spillway.Must(stats.NewSchedLatency(&stats.SchedLatencyOptions{
			Interval: 20 * time.Millisecond, Quantile: 0.9, Read: w.server.readWaits,
		})),
	}
	shed := spillway.Must(shedder.New(&o))
	b := w.probe("shedder", shed)
	var since time.Duration // of the current options
	b.numbers = func() numbers {
		s := shed.Stats()
		w.within(b.name, "Drop", s.Drop, 0, 1)
		w.within(b.name, "Leak", s.Leak, 0, 1)
		w.within(b.name, "Limit", s.Limit, 0, math.Inf(1))
		w.within(b.name, "MaxPass", s.MaxPass, 0, 1e6)
		w.within(b.name, "MinRT", s.MinRT.Seconds(), 0, 3600)
		if sum := s.RefusedSheddable + s.RefusedNormal + s.RefusedCritical; sum != s.Refused {
			w.violate(b.name, "the priorities should add up to %d refusals, they add up to %d", s.Refused, sum)
		}
		return numbers{inFlight: s.InFlight, refused: s.Refused, admitted: -1, returned: -1, cost: -1}
	}
	b.turned = func(r spillway.Request, reason string) {
		switch {
		case w.now-since < time.Second: // the last tick may have been before
		case o.Disabled:
			w.violate(b.name, "no refusal expected while disabled, one for %q", reason)
		case reason == "limit reached" && r.Priority >= spillway.Normal && b.inFlight() < int64(o.MinLimit):
			w.violate(b.name, "no refusal expected below MinLimit %d, one at %d in flight", o.MinLimit, b.inFlight())
		}
	}
	w.tune(b.name, func() error {
		o, since = w.shedderOptions(), w.now
		return shed.Tune(o)
	})
	return b
}

// shedderOptions returns random valid options; every other time it returns the defaults.
func (w *world) shedderOptions() (o shedder.Options) {
	if w.draw() < 0.5 {
		return o
	}
	o.CPUThreshold = pick(w, 0, shedder.Off, 0.5, 0.8, 1)
	o.SLO = pick(w, 0, 100*time.Millisecond, time.Second)
	o.CPUOnly = w.draw() < 0.2
	o.CoolDown = pick(w, 0, 100*time.Millisecond, 10*time.Second)
	o.Window = pick(w, 0, 500*time.Millisecond, 30*time.Second)
	o.MinLimit = pick(w, 0, 1, 8)
	o.MaxLimit = pick(w, 0, 8, 100)
	o.MaxShed = pick(w, 0, 0.2, 0.9)
	o.Disabled = w.draw() < 0.1
	if w.draw() < 0.3 {
		rng := rand.New(rand.NewPCG(w.seed, uint64(w.now)))
		o.Signals = []shedder.Signal{{Name: "mine", Threshold: 0.9, Read: func(time.Time) (float64, error) {
			switch n := rng.Float64(); {
			case n < 0.001:
				panic("signal")
			case n < 0.002:
				return math.NaN(), nil
			case n < 0.003:
				return 0, errBlind
			default:
				return n * 0.901, nil
			}
		}}}
	}
	return o
}

func (w *world) shadow() spillway.Policy {
	a, c := w.throttle("shadow throttle"), w.adaptive("shadow vegas", &adaptive.Vegas{Seed: w.seed})
	s := shadow.New(a, c)
	b := w.probe("shadow", s)
	b.numbers = func() numbers {
		for i, st := range s.Stats() {
			of := []*probe{a, c}[i]
			if st.Admitted != of.admitted || st.WouldRefuse != of.allRefused() {
				w.violate(b.name, "candidate %d: %d admitted and %d refused expected, it says %d and %d",
					i, of.admitted, of.allRefused(), st.Admitted, st.WouldRefuse)
			}
		}
		return numbers{-1, -1, -1, -1, -1}
	}
	w.tune(b.name, func() error { return s.Enforce(w.draw()/2, w.draw()/2) })
	w.tune(b.name, func() error { return s.SetSLO(exp(w.tuning, 100*time.Millisecond)) })
	return b
}

func (w *world) adaptive(name string, e adaptive.Estimator) *probe {
	l := spillway.Must(adaptive.New(&adaptive.Options{Estimator: e, Max: 200}))
	b := w.probe(name, l)
	b.numbers = func() numbers {
		s := l.Stats()
		w.within(name, "Limit", float64(s.Limit), 1, 1000)
		return numbers{inFlight: s.InFlight, refused: s.Refused, admitted: -1, returned: -1, cost: -1}
	}
	b.admits = func(spillway.Request) {
		if s := l.Stats(); b.inFlight() > s.Limit {
			w.violate(name, "at most %d in flight expected, %d were let in", s.Limit, b.inFlight())
		}
	}
	w.tune(name, func() error {
		o := l.Options()
		o.Initial, o.Min, o.Max = 0, w.intBetween(1, 10), w.intBetween(10, 300)
		o.MaxRise = pick(w, 0, adaptive.Off, 1.5, 4)
		o.MaxBaseline = pick(w, 0, 50*time.Millisecond, time.Second)
		return l.Tune(o)
	})
	return b
}

func (w *world) throttle(name string) *probe {
	t := spillway.Must(breaker.NewThrottle(&breaker.ThrottleOptions{Seed: w.seed + 1}))
	b := w.probe(name, t)
	b.numbers = func() numbers {
		s := t.StatsAt(w.time())
		w.within(name, "Odds", s.Odds, 0, 1)
		return numbers{inFlight: s.InFlight, refused: s.Refused, admitted: -1, returned: -1, cost: -1}
	}
	w.tune(name, func() error { return t.Tune(w.throttleOptions()) })
	return b
}

func (w *world) throttleOptions() breaker.ThrottleOptions {
	return breaker.ThrottleOptions{
		K: pick(w, 0, 1, 1.5, 3), MinRequests: w.intBetween(0, 50), MaxRefusal: pick(w, 0, 0.5, 1),
		ProbeEvery: pick(w, 0, breaker.Off, 100*time.Millisecond), RecoverAfter: pick(w, 0, breaker.Off, 2),
	}
}

func (w *world) breakerOptions() breaker.Options {
	return breaker.Options{
		MinCalls: w.intBetween(0, 50), FailureRate: pick(w, 0, breaker.Off, 0.2, 1), Consecutive: pick(w, 0, breaker.Off, 3),
		SlowCall: pick(w, 0, 100*time.Millisecond, time.Second), SlowRate: pick(w, 0, breaker.Off, 0.3),
		OpenFor: pick(w, 0, 100*time.Millisecond, time.Second), Jitter: pick(w, 0, breaker.Off, 0.5),
		Probes: w.intBetween(0, 10), ProbeFailureRate: pick(w, 0, 0.3), ProbeLease: pick(w, 0, time.Second),
		Ramp: pick(w, 0, 3*time.Second),
	}
}

func (w *world) breaker() spillway.Policy {
	state := breaker.Closed // after the last event
	k := spillway.Must(breaker.New(&breaker.Options{Seed: w.seed + 2, OnEvent: func(e breaker.Event) {
		if !e.WouldOpen && e.From != state {
			w.violate("breaker", "an event from %v expected, got one from %v to %v", state, e.From, e.To)
		}
		if !e.WouldOpen {
			state = e.To
		}
	}}))
	b := w.probe("breaker", k)
	b.numbers = func() numbers {
		s := k.StatsAt(w.time())
		w.within(b.name, "InFlight", float64(s.InFlight), 0, float64(b.inFlight()))
		w.within(b.name, "FailureRate", s.FailureRate, 0, 1)
		w.within(b.name, "SlowRate", s.SlowRate, 0, 1)
		w.within(b.name, "Share", s.Share, 0, 1)
		w.within(b.name, "Hung", float64(s.Hung), 0, float64(b.inFlight()))
		return numbers{inFlight: -1, refused: s.Refused, admitted: -1, returned: -1, cost: -1}
	}
	b.admits = func(spillway.Request) {
		if k.Stats().Mode == breaker.ForcedOpen {
			w.violate(b.name, "nothing through expected while forced open, a call was let through")
		}
	}
	w.tune(b.name, func() error {
		o := w.breakerOptions()
		o.OnEvent = k.Options().OnEvent
		return k.Tune(o)
	})
	w.tune(b.name, func() error {
		mode := pick(w, breaker.Auto, breaker.Auto, breaker.Auto, breaker.ForcedOpen, breaker.ForcedClosed, breaker.MetricsOnly)
		w.after(time.Minute, func() { _ = k.SetMode(w.time(), breaker.Auto) })
		return k.SetMode(w.time(), mode)
	})
	w.tune(b.name, func() error { _ = k.SetState(w.time(), breaker.Closed, 0); return nil })
	return b
}

// breakers keeps a breaker per dependency, for fewer dependencies than exist.
func (w *world) breakers() spillway.Policy {
	const most = dependencies * 3 / 4
	r := spillway.Must(breaker.NewKeyed(&breaker.KeyedOptions{MaxKeys: most, MaxOpen: 0.5, New: func(key string) (breaker.Member, error) {
		if len(key)%2 == 0 {
			return breaker.NewThrottle(&breaker.ThrottleOptions{Seed: w.seed + 3})
		}
		return breaker.New(&breaker.Options{Seed: w.seed + 4, OpenFor: time.Second})
	}}))
	b := w.probe("breakers", r)
	b.numbers = func() numbers {
		s := r.Stats()
		w.within(b.name, "Keys", float64(s.Keys), 0, most)
		w.within(b.name, "Open", float64(s.Open), 0, most/2)
		w.within(b.name, "Failed", float64(s.Failed), 0, 0)
		return numbers{-1, -1, -1, -1, -1}
	}
	w.tune(b.name, func() error {
		m, _ := r.Lookup(keyName(w.intBetween(0, dependencies)))
		b, t := w.breakerOptions(), w.throttleOptions()
		switch m := m.(type) {
		case *breaker.Breaker:
			return m.Tune(b)
		case *breaker.Throttle:
			return m.Tune(t)
		}
		return nil
	})
	return b
}

// A budget is a retry budget and the tokens that should be left in it.
type budget struct {
	*httpgate.RetryBudget
	w      *world
	tokens float64
}

func (w *world) newBudget() *budget {
	b := &budget{RetryBudget: spillway.Must(httpgate.NewRetryBudget(nil)), w: w, tokens: 10}
	w.checks = append(w.checks, func() {
		if got := b.Tokens(); math.Abs(got-b.tokens) > 1e-6 {
			w.violate("retry budget", "%.3f tokens expected, it says %.3f", b.tokens, got)
		}
	})
	return b
}

func (b *budget) record(o spillway.Outcome) {
	b.Record(o)
	switch o {
	case spillway.Success:
		b.tokens = math.Min(10, b.tokens+0.1)
	case spillway.Failure, spillway.Dropped:
		b.tokens = math.Max(0, b.tokens-1)
	}
}
