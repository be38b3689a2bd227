package law

import "fmt"

// Params are the constants of the law. Times are in seconds, fractions in 0..1. docs/algorithms.md gives the reason for each.
type Params struct {
	// Little's law at any CPU.
	Near    float64 // typical latencies that a request may stay in flight under the wide limit
	Tight   float64 // the same under the tight one
	Slack   float64 // time that may be added to them
	Part    float64 // the part of Slack that is left under the tight limit
	Heavy   float64 // refused share from which much is refused; twice as much is a flood
	Squeeze float64 // factor on the width of the limit per latency of a flood

	// Learning.
	Few    float64 // requests that say something
	Enough float64 // requests that say enough: chance is small
	Drift  float64 // rise of the typical latency in a calm second, at most

	// Slow or full.
	Cost   float64 // share of the answers before: a tighter limit that leaves fewer costs answers
	Proof  float64 // log-likelihood that excludes chance
	Expect float64 // answers to expect at least before they can be missing
	Far    float64 // typical latencies that a request may stay in flight while answers are missing

	// The CPU.
	Full float64 // usage from which the CPU is full
	Wait float64 // wait for a processor from which the CPU is short; waits are steered to four times that
}

// Default returns the constants in use. They were chosen with examples/simulate -suite.
func Default() Params {
	return Params{
		Near: 3, Tight: 1.5, Slack: 0.05, Part: 1.0 / 8, Heavy: 0.1, Squeeze: 0.35,
		Few: 10, Enough: 40, Drift: 0.002,
		Cost: 0.6, Proof: 10, Expect: 100, Far: 16,
		Full: 0.98, Wait: 0.005,
	}
}

// field returns the constant of the given name, nil if there is none.
func (p *Params) field(name string) *float64 {
	return map[string]*float64{
		"Near": &p.Near, "Tight": &p.Tight, "Slack": &p.Slack, "Part": &p.Part, "Heavy": &p.Heavy, "Squeeze": &p.Squeeze,
		"Few": &p.Few, "Enough": &p.Enough, "Drift": &p.Drift,
		"Cost": &p.Cost, "Proof": &p.Proof, "Expect": &p.Expect, "Far": &p.Far,
		"Full": &p.Full, "Wait": &p.Wait,
	}[name]
}

// With returns p with other values of the named constants, or an error that names an unknown constant.
func (p Params) With(values map[string]float64) (Params, error) {
	for name, v := range values {
		f := p.field(name)
		if f == nil {
			return p, fmt.Errorf("shedder: no constant %q", name)
		}
		*f = v
	}
	return p, nil
}

// Options are the user's choices. Times are in seconds.
type Options struct {
	Threshold          float64 // usage from which the CPU counts as short; +Inf ignores the usage
	CoolDown           float64
	Window             float64 // how far back the greatest rates are looked for
	SLO                float64 // 0 is none
	CPUOnly            bool
	MinLimit, MaxLimit float64 // MinLimit 0 is the default
}
