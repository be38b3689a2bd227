package main

import (
	"errors"
	"slices"
	"time"
)

// Kinds and paths as they appear in the results.
const (
	baseline = "baseline"
	shedding = "shedder"
	breaking = "breaker"
	bucket   = "bucket"
	bulk     = "bulkhead"

	admit  = "admit"
	refuse = "refuse"
)

var (
	errDown   = errors.New("down")
	errNoTurn = errors.New("it did not begin to refuse")
)

// entries returns everything that can be measured, the yardstick first.
func entries() []entry {
	return slices.Concat(baselines(), spillwayEntries(), limiterEntries(), shedders(), breakers(), limits())
}

// always starts an op whose preparation cannot fail and which needs no closing.
func always(build func() op) func() (op, func(), error) {
	return func() (op, func(), error) { return build(), nil, nil }
}

// baselines are the least costs of a request: clock reads at its arrival and its end, or only at its arrival if it is
// refused.
func baselines() []entry {
	return []entry{
		{"two clock reads", baseline, admit, always(func() op {
			return func() bool {
				start := time.Now()
				return time.Now().Sub(start) >= 0 //nolint:staticcheck // time.Since reads a cheaper clock
			}
		})},
		{"one clock read", baseline, refuse, always(func() op {
			return func() bool { return !time.Now().IsZero() }
		})},
	}
}

// turned calls do until it takes the intended path. It gives up after two seconds.
func turned(do op) error {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if do() {
			return nil
		}
	}
	return errNoTurn
}
