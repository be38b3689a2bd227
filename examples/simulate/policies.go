package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

// A contender is a policy with the name that the user gave it.
type contender struct {
	name string
	gate func(seed uint64) gates
}

// gates make the gate of each host.
type gates func(*sim.Host) (*spillway.Gate, error)

const policyNames = "none, fixed:N, spillway, spillway:threshold=0.8,slo=250ms or (with -suite) slo=2p99, gradient2, vegas, aimd"

// contenders reads the value of -policies.
func contenders(list string) ([]contender, error) {
	var all []contender
	for _, name := range split(list) {
		gate, err := gateOf(name)
		if err != nil {
			return nil, err
		}
		all = append(all, contender{name, gate})
	}
	return all, nil
}

// split returns the names in the value of -policies. A part such as "slo=250ms" belongs to the policy before it.
func split(list string) []string {
	var names []string
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		if n := len(names); n > 0 && strings.Contains(part, "=") && !strings.Contains(part, ":") {
			names[n-1] += "," + part
		} else {
			names = append(names, part)
		}
	}
	return names
}

// relative is an SLO that is a multiple of the p99 of a row's best fixed limit.
var relative = regexp.MustCompile(`\bslo=([0-9.]+)p99\b`)

// inRow returns the name of a policy with a relative SLO replaced by its value for the given p99. An SLO has to be at
// least 10 ms.
func inRow(name string, p99 time.Duration) (string, error) {
	if p99 == 0 && relative.MatchString(name) {
		return "", fmt.Errorf("policy %q: a row has no golden figures; make them with -sweep", name)
	}
	var bad error
	name = relative.ReplaceAllStringFunc(name, func(option string) string {
		factor, err := strconv.ParseFloat(relative.FindStringSubmatch(option)[1], 64)
		if err != nil {
			bad = fmt.Errorf("policy %q: %w", name, err)
		}
		slo := time.Duration(factor * float64(p99)).Round(time.Microsecond)
		return "slo=" + max(slo, 10*time.Millisecond).String()
	})
	return name, bad
}

func gateOf(name string) (func(seed uint64) gates, error) {
	kind, options, given := strings.Cut(name, ":")
	switch kind {
	case "fixed":
		n, err := strconv.Atoi(options)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("policy %q: the limit must be a whole number from 1 on, as in fixed:8", name)
		}
		return always(func(*sim.Host) (*spillway.Gate, error) {
			return limitOf(n)
		}), nil
	case "spillway":
		return shedding(name, options)
	}
	if given {
		kind = name // which is none of those below
	}
	switch kind {
	case "none":
		return always(func(*sim.Host) (*spillway.Gate, error) { return spillway.New(), nil }), nil
	case "gradient2":
		return alone(func() spillway.Policy { return learned(&adaptive.Gradient2{}, 20, 200) }), nil
	case "vegas":
		return func(seed uint64) gates {
			return func(*sim.Host) (*spillway.Gate, error) {
				seed++ // another one for each host
				return spillway.New(learned(&adaptive.Vegas{Seed: seed}, 1, 1000)), nil
			}
		}, nil
	case "aimd":
		return alone(func() spillway.Policy { return learned(&adaptive.AIMD{}, 20, 200) }), nil
	}
	return nil, fmt.Errorf("unknown policy %q; there are %s", name, policyNames)
}

// limitOf returns a gate of a fixed limit.
func limitOf(n int) (*spillway.Gate, error) {
	limit, err := limiter.New(limiter.Concurrency{Limit: n})
	return spillway.New(limit), err
}

// always returns gates that need no seed.
func always(g gates) func(uint64) gates { return func(uint64) gates { return g } }

// alone returns gates of one policy each.
func alone(policy func() spillway.Policy) func(uint64) gates {
	return always(func(*sim.Host) (*spillway.Gate, error) { return spillway.New(policy()), nil })
}

// learned returns a limit that an estimator learns, in the bounds that its authors gave it.
func learned(e adaptive.Estimator, least, most int) spillway.Policy {
	return spillway.Must(adaptive.New(&adaptive.Options{Estimator: e, Min: least, Max: most}))
}

// shedding returns gates with a shedder with the given options; its sensors are the host's own.
func shedding(name, options string) (func(uint64) gates, error) {
	var o shedder.Options
	for option := range strings.SplitSeq(options, ",") {
		if option == "" {
			continue
		}
		var err error
		switch key, value, _ := strings.Cut(option, "="); key {
		case "threshold":
			o.CPUThreshold, err = strconv.ParseFloat(value, 64)
		case "slo":
			o.SLO, err = time.ParseDuration(value)
		case "cooldown":
			o.CoolDown, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("unknown option %q; there are threshold, slo and cooldown", key)
		}
		if err != nil {
			return nil, fmt.Errorf("policy %q: %w", name, err)
		}
	}
	return always(func(h *sim.Host) (*spillway.Gate, error) {
		shed, err := shedder.New(hosted(o, h))
		if err != nil {
			return nil, fmt.Errorf("policy %q: %w", name, err)
		}
		return spillway.New(shed), nil
	}), nil
}

// hosted returns options with the sensors and the size of a simulated host.
func hosted(o shedder.Options, h *sim.Host) *shedder.Options {
	o.CPU, o.Sched = h.CPU(), h.Sched()
	return &o
}
