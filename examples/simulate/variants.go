package main

import (
	"math"

	"github.com/spillway-go/spillway/shedder"
)

// A variant is a shedder with one mechanism switched off, or one constant changed.
type variant struct {
	name string
	new  func(*shedder.Options) (*shedder.Shedder, error)
}

// variants returns the variants that -ablate compares, the default first: each mechanism switched off, then each
// constant halved and doubled. A fraction near 1 has its distance to 1 halved and doubled.
func variants() []variant {
	all := []variant{{"default", shedder.New}, {"off: all but pass × rt", letter}}
	for _, off := range []struct {
		name      string
		constants map[string]float64
	}{
		{"tight limit", map[string]float64{"Tight": 3, "Part": 1}},
		{"tightening at once", map[string]float64{"Squeeze": 1}},
		{"missing answers", map[string]float64{"Proof": 1e9}},
		{"answers lost", map[string]float64{"Cost": 0}},
		{"drift bound", map[string]float64{"Drift": 1}},
		{"queue detector", map[string]float64{"Few": 1e9}},
		{"waits and drops", map[string]float64{"Wait": math.Inf(1)}},
		{"CPU integral", map[string]float64{"Full": 2}},
	} {
		all = append(all, changed("off: "+off.name, off.constants))
	}
	for _, c := range []struct {
		name  string
		value float64
	}{
		{"Near", 3}, {"Tight", 1.5}, {"Slack", 0.05}, {"Part", 0.125}, {"Heavy", 0.1}, {"Squeeze", 0.35}, {"Few", 10}, {"Enough", 40},
		{"Drift", 0.002}, {"Cost", 0.6}, {"Proof", 10}, {"Expect", 100}, {"Far", 16}, {"Full", 0.98}, {"Wait", 0.005},
	} {
		half, twice := c.value/2, c.value*2
		switch c.name {
		case "Full", "Tight": // their distance to 1 matters
			half, twice = 1+(c.value-1)/2, 1+(c.value-1)*2
		}
		all = append(all, changed(c.name+" / 2", map[string]float64{c.name: half}), changed(c.name+" x 2", map[string]float64{c.name: twice}))
	}
	return all
}

func changed(name string, constants map[string]float64) variant {
	return variant{name, func(o *shedder.Options) (*shedder.Shedder, error) { return shedder.NewVariant(o, constants) }}
}

func letter(o *shedder.Options) (*shedder.Shedder, error) {
	rule := *o
	rule.CPUOnly = true
	return shedder.New(&rule)
}
