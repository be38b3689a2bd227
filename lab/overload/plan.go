package overload

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// A Plan says what one run measures.
type Plan struct {
	Guards  []string      // by name, in order: none, fixed:N, rate:F, and those of the [Config]
	Work    string        // by name
	Loads   []float64     // in order, as multiples of the capacity: above 0 and at most 50
	Each    time.Duration // how long each load lasts, at most 10 minutes
	Settle  time.Duration // how long the light load before each step up lasts. If Settle is 0, there is none.
	Quota   float64       // CPUs that the server may use, 0 to 1. If Quota is 0, there is no limit.
	Seed    uint64        // of the arrival times
	Shape   Shape         // how a load arrives. If Shape is empty, it is [Step].
	Recheck bool          // measure the capacity once more at the end
}

// Measure carries out p and reports its progress on out.
func (c *Config) Measure(ctx context.Context, p Plan, out io.Writer) (*Run, error) {
	if err := p.check(c); err != nil {
		return nil, err
	}
	return c.measure(ctx, &options{Plan: p, capacityTime: capacityTime}, newProgress(out))
}

// ParseLoads reads numbers separated by commas.
func ParseLoads(text string) ([]float64, error) {
	var loads []float64
	for s := range strings.SplitSeq(text, ",") {
		load, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, fmt.Errorf("overload: -loads: %q is not a number", s)
		}
		loads = append(loads, load)
	}
	return loads, nil
}

// The bounds keep a typing error from becoming a flood.
const (
	maxLoad = 50
	maxTime = 10 * time.Minute
)

func (p *Plan) check(c *Config) error {
	for _, load := range p.Loads {
		if !(load > 0 && load <= maxLoad) {
			return fmt.Errorf("overload: -loads: must be above 0 and at most %d, got %g", maxLoad, load)
		}
	}
	for _, name := range p.Guards {
		if _, err := c.guard(name); err != nil {
			return err
		}
	}
	if _, err := c.work(p.Work); err != nil {
		return err
	}
	if p.Each <= 0 || p.Each > maxTime {
		return fmt.Errorf("overload: -seconds: must be above 0 and at most %v, got %v", maxTime, p.Each)
	}
	if p.Settle < 0 || p.Settle > maxTime {
		return fmt.Errorf("overload: -settle: must be 0 to %v, got %v", maxTime, p.Settle)
	}
	if !(p.Quota >= 0 && p.Quota <= 1) {
		return fmt.Errorf("overload: -quota: must be 0 to 1, since the server has GOMAXPROCS=1, got %g", p.Quota)
	}
	return p.Shape.check()
}
