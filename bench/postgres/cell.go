package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/lab/overload"
)

// A cell is one thing to be measured: one guard at one mix, load and fault.
type cell struct {
	guard string
	mix   mix
	load  float64
	fault string // "", coldStart, or the name of a fault
	slo   time.Duration
}

func (c cell) String() string {
	return place{c.mix.name, c.load, c.fault}.String() + " " + c.guard
}

// A rig is the setup that all cells are measured on.
type rig struct {
	*settings

	db    *database
	group *overload.Cgroup
	trace *trace
}

const (
	lightLoad   = 0.5 // load before each step
	beforeFault = 3 * time.Second
	workers     = 2 * poolSize     // of the closed loop
	closedTime  = 3 * time.Second  // while the capacity is counted
	brief       = 1 * time.Second  // settling of a guard that learns nothing
	patience    = 20 * time.Second // for a database that does not come back
)

// with starts an app, lets f use it and stops it. It waits until the database has forgotten it.
func (r *rig) with(ctx context.Context, o orders, f func(c *clients) error) ([]glimpse, error) {
	o.URL = r.db.url()
	a, err := startApp(ctx, o, r.group)
	if err != nil {
		return nil, err
	}
	c := newClients(a.addr)
	err = f(c)
	c.close()
	seen := a.stop()
	if err != nil {
		return nil, err
	}
	return seen, r.db.rest(ctx)
}

// A load is the bare app's throughput for a mix, and its cost.
type load struct {
	Mix         string  `json:"mix"`
	Capacity    float64 `json:"capacity_rps"`
	AppCPU      float64 `json:"app_cpu"`      // CPUs in use meanwhile
	DatabaseCPU float64 `json:"database_cpu"` // the same

	// All measurements; Capacity is their median.
	Least    float64 `json:"capacity_least_rps"`
	Greatest float64 `json:"capacity_greatest_rps"`
}

// capacity measures the bare app in a closed loop.
func (r *rig) capacity(ctx context.Context, m mix, d time.Duration) (l load, err error) {
	l.Mix = m.name
	_, err = r.with(ctx, orders{Guard: "none"}, func(c *clients) error {
		start := time.Now()
		app, err1 := r.group.CPUTime()
		db, err2 := r.db.group.CPUTime()
		l.Capacity = c.closedLoop(ctx, m, workers, d)
		appAfter, err3 := r.group.CPUTime()
		dbAfter, err4 := r.db.group.CPUTime()
		for _, err := range []error{ctx.Err(), err1, err2, err3, err4} {
			if err != nil {
				return err
			}
		}
		took := time.Since(start).Seconds()
		l.AppCPU, l.DatabaseCPU = (appAfter-app).Seconds()/took, (dbAfter-db).Seconds()/took
		if l.Capacity <= 0 {
			return fmt.Errorf("%s: the bare app answers nothing", m.name)
		}
		return nil
	})
	return l, err
}

// databaseCPU sends how many CPUs the database uses on average between two moments, or 0 if that cannot be read.
func (r *rig) databaseCPU(ctx context.Context, from, to time.Time) <-chan float64 {
	used := make(chan float64, 1)
	go func() {
		pause(ctx, time.Until(from))
		before, err1 := r.db.group.CPUTime()
		begin := time.Now()
		pause(ctx, time.Until(to))
		after, err2 := r.db.group.CPUTime()
		if err1 != nil || err2 != nil {
			used <- 0
			return
		}
		used <- (after - before).Seconds() / max(time.Since(begin), grain).Seconds()
	}()
	return used
}

// settleFor returns how long c runs at the light load before its step.
func (r *rig) settleFor(c cell) time.Duration {
	if c.fault == coldStart {
		return 0
	}
	if learnsNothing(c.guard) {
		return min(brief, r.settle)
	}
	return r.settle
}

// run measures one cell.
func (r *rig) run(ctx context.Context, c cell, capacity float64, seed uint64) (*result, error) {
	step := r.settleFor(c)
	end := step + r.each
	var f fault
	if c.fault != "" && c.fault != coldStart {
		var err error
		if f, err = findFault(c.fault); err != nil {
			return nil, err
		}
		end += beforeFault + f.last
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	requests := schedule(rng, c.mix, lightLoad*capacity, 0, step)
	requests = append(requests, schedule(rng, c.mix, c.load*capacity, step, end)...)
	var base, back time.Time
	used := 0.0
	seen, err := r.with(ctx, orders{Guard: c.guard, SLO: c.slo}, func(all *clients) error {
		base = time.Now()
		struck := make(chan error, 1)
		faultContext, cancel := context.WithTimeout(ctx, end+patience)
		defer cancel()
		go func() {
			if f.do == nil {
				struck <- nil
				return
			}
			pause(faultContext, step+beforeFault)
			var err error
			back, err = f.strike(faultContext, r.db)
			struck <- err
		}()
		cpu := r.databaseCPU(ctx, base.Add(step), base.Add(end))
		requests = all.run(ctx, base, requests)
		used = <-cpu
		if err := <-struck; err != nil {
			return err
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c, err)
	}
	if err := r.trace.write(c, base, step, end, requests, seen); err != nil {
		return nil, err
	}
	res := &result{Capacity: capacity, DatabaseCPU: used, Guard: c.guard, Mix: c.mix.name, Load: c.load, Fault: c.fault, SLO: millis(c.slo)}
	rate, times := min(c.load, 1)*capacity, arrivals(requests)
	if f.do == nil {
		res.measure(requests, step, end, capacity)
		res.DeadS = longestDead(times, step, end, rate)
		return res, nil
	}
	from := min(back.Sub(base), end-grain) // requests sent while the database could not answer say little about the guard
	res.measure(requests, from, end, capacity)
	res.DeadS = untilGood(times, from, end, rate)
	return res, nil
}
