package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"
)

// An op asks a policy once and, if admitted, ends the request. It reports whether the request took the path of its entry:
// admitted for the path "admit", refused for "refuse". Many goroutines call it at once.
type op func() bool

// An entry is one policy on one path.
type entry struct {
	name, kind, path string
	// start returns a fresh policy in the state that the path needs, and a function that closes it, or nil.
	start func() (do op, stop func(), err error)
}

func (e entry) key() string { return e.name + "/" + e.path }

// A result is the medians of one entry over the passes.
type result struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Path string `json:"path"`
	// Procs is the number of goroutines that called at once, each with a processor.
	Procs int `json:"procs"`
	// NS is wall-clock nanoseconds per operation. Two procs that do not slow each other down halve it.
	NS float64 `json:"ns"`
	// Ratio is NS divided by the NS of two clock reads in the same pass with the same number of procs.
	Ratio float64 `json:"ratio"`
	// Spread is half the distance between the quartiles of NS, as a share of NS.
	Spread float64 `json:"spread"`
	// Allocs is heap allocations per operation, rounded.
	Allocs int `json:"allocs"`
	// Taken is the share of operations that took the path.
	Taken float64 `json:"taken"`
}

func (r result) key() string { return r.Name + "/" + r.Path }

// A plan says what to measure and for how long.
type plan struct {
	passes int
	slice  time.Duration
	procs  []int
	only   *regexp.Regexp
}

// A cell is one entry at one number of procs, with its measurements in each pass.
type cell struct {
	entry

	procs     int
	do        op
	yardstick *cell // two clock reads with as many procs

	ns, ratio          []float64
	allocs, ops, taken uint64
}

// measure runs all passes and returns the results in the order of the entries. The first entry is the yardstick; it is
// always measured.
func (p plan) measure(all []entry) ([]result, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var cells []*cell
	for i, e := range all {
		if i > 0 && !p.only.MatchString(e.key()) {
			continue
		}
		for j, procs := range p.procs {
			do, stop, err := e.start()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.key(), err)
			}
			if stop != nil {
				defer stop()
			}
			c := &cell{entry: e, procs: procs, do: do}
			cells = append(cells, c)
			c.yardstick = cells[j]
		}
	}
	for pass := range p.passes + 1 {
		for _, procs := range p.procs {
			runtime.GOMAXPROCS(procs)
			for _, c := range cells {
				if c.procs == procs {
					c.measure(p.slice, pass > 0) // the first pass warms up
				}
			}
		}
	}
	results := make([]result, len(cells))
	for i, c := range cells {
		if c.taken == 0 {
			return nil, fmt.Errorf("%s: %w", c.key(), errNeverTaken)
		}
		results[i] = c.result()
	}
	return results, nil
}

var errNeverTaken = errors.New("no request went this way")

func (c *cell) measure(slice time.Duration, keep bool) {
	runtime.GC() // collect the garbage of earlier cells first
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rate, ops, taken := calls(c.do, c.procs, slice)
	runtime.ReadMemStats(&after)
	if !keep {
		return
	}
	c.ns = append(c.ns, 1e9/rate)
	c.ratio = append(c.ratio, c.ns[len(c.ns)-1]/c.yardstick.ns[len(c.ns)-1])
	c.allocs += after.Mallocs - before.Mallocs
	c.ops += ops
	c.taken += taken
}

// batch is how many operations pass between two looks at the clock: enough to hide it.
const batch = 200

// calls has several goroutines call do for a while and returns the operations per second of all of them together.
func calls(do op, procs int, slice time.Duration) (rate float64, ops, taken uint64) {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		ready sync.WaitGroup
	)
	ready.Add(procs)
	for range procs {
		wg.Go(func() {
			ready.Done()
			ready.Wait()
			n, hits, begin := uint64(0), uint64(0), time.Now()
			elapsed := time.Duration(0)
			for elapsed < slice {
				for range batch {
					if do() {
						hits++
					}
				}
				n += batch
				elapsed = time.Since(begin)
			}
			mu.Lock()
			defer mu.Unlock()
			rate += float64(n) / elapsed.Seconds()
			ops += n
			taken += hits
		})
	}
	wg.Wait()
	return rate, ops, taken
}

func (c *cell) result() result {
	ns := slices.Sorted(slices.Values(c.ns))
	return result{
		Name: c.name, Kind: c.kind, Path: c.path, Procs: c.procs,
		NS:     round(quantile(ns, 0.5), 10),
		Ratio:  round(quantile(slices.Sorted(slices.Values(c.ratio)), 0.5), 1000),
		Spread: round((quantile(ns, 0.75)-quantile(ns, 0.25))/2/quantile(ns, 0.5), 1000),
		Allocs: int(math.Round(float64(c.allocs) / float64(c.ops))),
		Taken:  float64(c.taken) / float64(c.ops),
	}
}

// quantile returns the q-quantile of sorted values by linear interpolation.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

func round(v, parts float64) float64 { return math.Round(v*parts) / parts }
