package law

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

// A draw returns how many seconds a call takes.
type draw func(*rand.Rand) float64

func constant(s float64) draw    { return func(*rand.Rand) float64 { return s } }
func exponential(s float64) draw { return func(r *rand.Rand) float64 { return s * r.ExpFloat64() } }

// lognormal has the given mean and a σ of 1.
func lognormal(s float64) draw {
	return func(r *rand.Rand) float64 { return s * math.Exp(r.NormFloat64()-0.5) }
}

// narrow has the given mean and a standard deviation of a tenth of it.
func narrow(s float64) draw {
	return func(r *rand.Rand) float64 { return s * math.Max(0.1, 1+0.1*r.NormFloat64()) }
}

// alike is lognormal with the given mean and a σ of 0.3.
func alike(s float64) draw {
	return func(r *rand.Rand) float64 { return s * math.Exp(0.3*r.NormFloat64()-0.045) }
}

// uniform is between half and one and a half of the given mean.
func uniform(s float64) draw { return func(r *rand.Rand) float64 { return s * (0.5 + r.Float64()) } }

// half is a fixed time of half the given mean, and an exponential one.
func half(s float64) draw { return func(r *rand.Rand) float64 { return s/2 + s/2*r.ExpFloat64() } }

// bimodal is nine in ten short calls and one long one, with the given mean.
func bimodal(s float64) draw {
	return func(r *rand.Rand) float64 {
		if r.IntN(10) == 0 {
			return 9.4 * s
		}
		return s / 15
	}
}

// free are the moments at which slots are free again.
type free []float64

func (f free) Len() int           { return len(f) }
func (f free) Less(i, j int) bool { return f[i] < f[j] }
func (f free) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *free) Push(x any)        { *f = append(*f, x.(float64)) }
func (f *free) Pop() any {
	last := len(*f) - 1
	x := (*f)[last]
	*f = (*f)[:last]
	return x
}

// A plant is a service under a Law: calls that arrive at random, and slots that answer them in order.
type plant struct {
	*Law
	r     Reading // of the present step; what stays is set by the test
	rng   *rand.Rand
	takes draw
	slots int // 0: as many as there are calls
	fails bool
	// Requests take the steps, so that a second with few of them has few steps. Otherwise there is one every 20 ms.
	sparse bool
	gap    float64 // seconds since the last step
	useful float64 // seconds that an answer may take to be timely

	now     float64
	queue   []float64 // arrivals that wait for a slot
	ends    free      // of those that have one
	arrived map[float64]float64

	v                 Verdict
	admitted, refused float64 // since reset
	good              float64 // answers
	timely            float64 // those of them within useful
	most              float64 // in flight
	reasons           map[Reason]int
}

func newPlant(seed uint64, o Options, slots int, takes draw) *plant {
	if o.Threshold == 0 {
		o.Threshold = 0.9
	}
	if o.CoolDown == 0 {
		o.CoolDown = 1
	}
	if o.Window == 0 {
		o.Window = 5
	}
	if o.MaxLimit == 0 {
		o.MaxLimit = math.Inf(1)
	}
	p := &plant{Law: New(Default()), rng: rand.New(rand.NewPCG(seed, 1)), takes: takes, slots: slots, arrived: map[float64]float64{}}
	p.Tune(o)
	p.v.Limit = math.Inf(1)
	p.r = Reading{CPU: 0.1, Smoothed: 0.1, CPUKnown: true, CPUs: 2, Running: 1}
	p.reset()
	return p
}

func (p *plant) reset() {
	p.admitted, p.refused, p.good, p.timely, p.most, p.reasons = 0, 0, 0, 0, 0, map[Reason]int{}
}

const tick = 0.02

// run offers rate calls a second for the given seconds, and advances the law every 20 ms, unless p is sparse.
func (p *plant) run(seconds, rate float64) {
	for steps := int(math.Round(seconds / tick)); steps > 0; steps-- {
		if p.gap == 0 {
			p.r.Admitted, p.r.Refused, p.r.Left, p.r.Ended, p.r.Answered, p.r.Latency, p.r.Quick = 0, 0, 0, 0, 0, 0, 0
		}
		until := p.now + tick
		next := math.Inf(1)
		if rate > 0 {
			next = p.now + p.rng.ExpFloat64()/rate
		}
		for {
			if len(p.ends) > 0 && p.ends[0] <= math.Min(next, until) {
				p.end()
				continue
			}
			if next > until {
				break
			}
			p.arrive(next)
			next += p.rng.ExpFloat64() / rate
		}
		p.now = until
		p.gap += tick
		if p.sparse && p.r.Admitted+p.r.Refused == 0 {
			continue
		}
		p.r.Dt, p.r.InFlight, p.gap = p.gap, p.inside(), 0
		p.r.CPUFresh = steps%12 == 0
		p.r.WaitFresh = true
		p.v = p.Step(&p.r)
		p.reasons[p.v.Reason]++
	}
}

// stall runs while nothing that has begun ends, and nothing begins.
func (p *plant) stall(seconds, rate float64) {
	slots, arrived := p.slots, map[float64]float64{}
	for i, end := range p.ends {
		p.ends[i] = end + seconds
		arrived[p.ends[i]] = p.arrived[end]
	}
	p.arrived, p.slots = arrived, max(len(p.ends), 1)
	p.run(seconds, rate)
	p.slots = slots
}

func (p *plant) inside() float64 { return float64(len(p.queue) + len(p.ends)) }

func (p *plant) arrive(at float64) {
	if p.inside()+1 > p.v.Limit || p.rng.Float64() < p.v.Drop {
		p.refused++
		p.r.Refused++
		return
	}
	p.admitted++
	p.r.Admitted++
	p.queue = append(p.queue, at)
	p.most = math.Max(p.most, p.inside())
	p.start(at)
}

func (p *plant) start(at float64) {
	for len(p.queue) > 0 && (p.slots == 0 || len(p.ends) < p.slots) {
		end := at + math.Max(p.takes(p.rng), 1e-9)
		p.arrived[end] = p.queue[0]
		p.queue = p.queue[1:]
		heap.Push(&p.ends, end)
	}
}

func (p *plant) end() {
	at := heap.Pop(&p.ends).(float64)
	p.r.Left++
	p.r.Ended++
	if !p.fails {
		p.r.Answered++
		p.r.Latency += at - p.arrived[at]
		if at-p.arrived[at] < p.v.Quick {
			p.r.Quick++
		}
		p.good++
		if at-p.arrived[at] <= p.useful {
			p.timely++
		}
	}
	delete(p.arrived, at)
	p.start(at)
}

// share is the refused share since reset.
func (p *plant) share() float64 { return p.refused / (p.refused + p.admitted) }
