package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/lab/overload"
)

// learnsNothing reports whether a guard is the same at any moment, so that it needs no time to settle.
func learnsNothing(guard string) bool {
	return guard == "none" || isFixed(guard) || strings.HasPrefix(guard, throttlePrefix)
}

func isFixed(guard string) bool {
	_, ok := overload.FixedLimit(guard)
	return ok
}

// A place is a set of cells that differ only by their guard, to compare the guards.
type place struct {
	mix   string
	load  float64
	fault string
}

func (p place) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %gx %s", p.mix, p.load, p.fault))
}

// A session is all passes.
type session struct {
	*rig

	out   io.Writer
	all   map[place][]*result // of all guards and passes
	order []place
	loads map[string][]load // by mix, of all passes
	slos  map[place]time.Duration
	notes []string
}

// drift is how much the capacity may move from one place to the next before it is noted.
const drift = 0.1

func (s *session) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
	fmt.Fprintln(s.out, "note:", s.notes[len(s.notes)-1])
}

// measure carries out all passes.
func (s *session) measure(ctx context.Context) error {
	for pass := range s.passes {
		if s.trace != nil {
			s.trace.pass = pass + 1
		}
		for _, m := range s.mixes {
			if err := s.pass(ctx, pass, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// pass measures one mix once. The capacity is measured before each place, and a last time at the end. So all guards of
// a place face the same load and share the same yardstick, even if the speed of the machine changes.
func (s *session) pass(ctx context.Context, pass int, m mix) error {
	before := -1.0
	for _, p := range s.places(m) {
		l, err := s.capacity(ctx, m, closedTime)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "\n%s, pass %d of %d: the bare app answers %.0f requests per second; app %.2f CPU, database %.2f CPU\n",
			p, pass+1, s.settings.passes, l.Capacity, l.AppCPU, l.DatabaseCPU)
		s.moved(m, before, l.Capacity)
		before = l.Capacity
		s.loads[m.name] = append(s.loads[m.name], l)
		if err := s.place(ctx, p, m, pass, l.Capacity); err != nil {
			return err
		}
	}
	after, err := s.capacity(ctx, m, closedTime)
	if err != nil {
		return err
	}
	s.moved(m, before, after.Capacity)
	s.loads[m.name] = append(s.loads[m.name], after)
	return nil
}

// moved adds a note if the capacity has changed.
func (s *session) moved(m mix, before, after float64) {
	if by := after/before - 1; before > 0 && math.Abs(by) > drift {
		s.note("%s: the capacity moved by %+.0f %%, from %.0f requests per second", m.name, 100*by, before)
	}
}

// place measures all guards at p, the one with an objective last. From pass to pass the others change places.
func (s *session) place(ctx context.Context, p place, m mix, pass int, capacity float64) error {
	guards := s.guardsAt(p)
	if len(s.all[p]) == 0 {
		s.order = append(s.order, p)
	}
	n := pass * len(guards) / s.settings.passes
	for _, guard := range slices.Concat(guards[n:], guards[:n]) {
		if err := s.cell(ctx, p, cell{guard: guard, mix: m, load: p.load, fault: p.fault}, capacity, uint64(pass)); err != nil {
			return err
		}
	}
	if !slices.Contains(s.guards, withSLO) {
		return nil
	}
	slo := s.sloAt(p) // needs the fixed limits
	if slo == 0 {
		s.note("%v: no p99 of a fixed limit to take the objective of %s from", p, withSLO)
		return nil
	}
	return s.cell(ctx, p, cell{guard: withSLO, mix: m, load: p.load, fault: p.fault, slo: slo}, capacity, uint64(pass))
}

func (s *session) cell(ctx context.Context, p place, c cell, capacity float64, pass uint64) error {
	res, err := s.run(ctx, c, capacity, s.seed+pass)
	if err != nil {
		return err
	}
	s.all[p] = append(s.all[p], res)
	fmt.Fprintf(s.out, "%-36s goodput %.2f  p99 %5s ms  refused %4.1f %%  timed out %4.1f %%  failed %4.1f %%  dead %.2f s  database %.2f CPU\n",
		c, res.Goodput, text(res.P99, 0), 100*res.Refused, 100*res.Timeouts, 100*res.Failed, res.DeadS, res.DatabaseCPU)
	if res.LagP99 > 20 {
		s.note("%v: the clients were up to %.0f ms late (p99)", c, res.LagP99)
	}
	return nil
}

// places returns the places of one mix. The steps come first, because the faults use their best limit.
func (s *session) places(m mix) (all []place) {
	if slices.Contains(s.faults, "") {
		for _, load := range s.settings.loads {
			all = append(all, place{m.name, load, ""})
		}
	}
	for _, f := range s.faults {
		switch f {
		case "":
		case coldStart:
			all = append(all, place{m.name, s.coldLoad, f})
		default:
			for _, load := range s.faultLoads {
				all = append(all, place{m.name, load, f})
			}
		}
	}
	return all
}

// guardsAt returns the guards to measure at p, except the one with an objective. At a step and a cold start it adds the
// sweep of fixed limits, and at a fault the best limit of the nearest step.
func (s *session) guardsAt(p place) (guards []string) {
	for _, g := range s.guards {
		if g != withSLO {
			guards = append(guards, g)
		}
	}
	add := func(name string) {
		if !slices.Contains(guards, name) {
			guards = append(guards, name)
		}
	}
	if p.fault == "" || p.fault == coldStart {
		for _, n := range s.sweep {
			add(overload.Fixed(n).Name)
		}
	} else if _, lowest := best(fixedOf(merge(s.all[s.stepNear(p)]))); lowest != nil {
		add(lowest.Guard)
	}
	return guards
}

// stepNear returns the step whose load is nearest to p's.
func (s *session) stepNear(p place) (step place) {
	for _, q := range s.order {
		near := math.Abs(math.Log(q.load/p.load)) < math.Abs(math.Log(step.load/p.load))
		if q.mix == p.mix && q.fault == "" && (step.mix == "" || near) {
			step = q
		}
	}
	return step
}

// sloAt returns the objective for p: the one from the flags, or twice the p99 of the best fixed limit there in the
// first pass. It is 0 if there is none.
func (s *session) sloAt(p place) time.Duration {
	if s.slo > 0 {
		return s.slo
	}
	if p.fault != "" && p.fault != coldStart {
		p = s.stepNear(p)
	}
	if s.slos[p] == 0 {
		if _, lowest := best(fixedOf(merge(s.all[p]))); lowest != nil {
			s.slos[p] = time.Duration(2 * *lowest.P99 * float64(time.Millisecond))
		}
	}
	return s.slos[p]
}

// results returns the medians over the passes, each compared with the best fixed limit of its place.
func (s *session) results() (all []*result) {
	for _, p := range s.order {
		rows := merge(s.all[p])
		compare(rows)
		all = append(all, rows...)
	}
	return all
}

func fixedOf(rows []*result) (out []*result) {
	for _, r := range rows {
		if isFixed(r.Guard) {
			out = append(out, r)
		}
	}
	return out
}

// compare fills in the comparisons of the rows of one place with the best fixed limit.
func compare(rows []*result) {
	most, lowest := best(fixedOf(rows))
	for _, r := range rows {
		if most != nil && most.Goodput > 0 {
			r.OfBest, r.BestFixed = overload.Known(r.Goodput/most.Goodput), most.Guard
		}
		if lowest != nil && r.P99 != nil {
			r.P99OfBest, r.P99Fixed = overload.Known(*r.P99 / *lowest.P99), lowest.Guard
		}
	}
}

// merge returns one row for each guard, with the medians over its passes, in the order in which the guards first came.
func merge(passes []*result) (rows []*result) {
	byGuard := map[string][]*result{}
	var guards []string
	for _, r := range passes {
		if byGuard[r.Guard] == nil {
			guards = append(guards, r.Guard)
		}
		byGuard[r.Guard] = append(byGuard[r.Guard], r)
	}
	slices.SortStableFunc(guards, func(a, b string) int { return limitOf(a) - limitOf(b) })
	for _, g := range guards {
		rows = append(rows, middle(byGuard[g]))
	}
	return rows
}

// limitOf orders the fixed limits behind the other guards.
func limitOf(guard string) int {
	n, _ := overload.FixedLimit(guard)
	return n
}

// middle returns the medians of the same cell in several passes, each figure by itself.
func middle(passes []*result) *result {
	out := *passes[0]
	figure := func(of func(*result) float64) float64 {
		var all []float64
		for _, r := range passes {
			all = append(all, of(r))
		}
		return median(all)
	}
	known := func(of func(*result) *float64) *float64 {
		var all []*float64
		for _, r := range passes {
			all = append(all, of(r))
		}
		return medianOf(all)
	}
	out.Goodput = figure(func(r *result) float64 { return r.Goodput })
	out.GoodputLast = figure(func(r *result) float64 { return r.GoodputLast })
	out.Refused = figure(func(r *result) float64 { return r.Refused })
	out.Timeouts = figure(func(r *result) float64 { return r.Timeouts })
	out.Failed = figure(func(r *result) float64 { return r.Failed })
	out.DeadS = figure(func(r *result) float64 { return r.DeadS })
	out.DatabaseCPU = figure(func(r *result) float64 { return r.DatabaseCPU })
	out.Capacity = figure(func(r *result) float64 { return r.Capacity })
	out.LagP99 = figure(func(r *result) float64 { return r.LagP99 })
	out.P50 = known(func(r *result) *float64 { return r.P50 })
	out.P99 = known(func(r *result) *float64 { return r.P99 })
	out.RefusedP99 = known(func(r *result) *float64 { return r.RefusedP99 })
	out.WithinSLO = known(func(r *result) *float64 { return r.WithinSLO })
	out.Served = map[string]float64{}
	for name := range passes[0].Served {
		out.Served[name] = figure(func(r *result) float64 { return r.Served[name] })
	}
	out.Passes = nil
	for _, r := range passes {
		out.Passes = append(out.Passes, r.Goodput)
	}
	return &out
}
