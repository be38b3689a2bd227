package main

import (
	"errors"
	"time"
	"unsafe"
)

// A clock is virtual time: a monotonic reading that only grows, and a wall clock that may step.
type clock struct {
	base time.Time
	now  time.Duration // since base
	skew time.Duration // of the wall clock, in whole seconds
}

// newClock returns a clock whose wall shows at, in whole seconds.
func newClock(at time.Time) (*clock, error) {
	now := time.Now() // the only source of a monotonic reading
	now = now.Add(-time.Duration(now.Nanosecond()))
	c := &clock{base: stepped(now, time.Duration(at.Unix()-now.Unix())*time.Second)}
	if c.base.Sub(now) != 0 || !c.base.Equal(at) {
		return nil, errors.New("this Go lays out time.Time in another way: the wall clock cannot be stepped")
	}
	return c, nil
}

// time returns the time that a process would read now.
func (c *clock) time() time.Time { return stepped(c.base.Add(c.now), c.skew) }

// stepped returns t as read after the wall clock was set d ahead, with the same monotonic reading. Only whole seconds
// of d count.
func stepped(t time.Time, d time.Duration) time.Time {
	// Package time cannot say this: Add moves both readings. The seconds of a time with a monotonic reading stand above the
	// 30 bits of its nanoseconds, in the first word.
	*(*uint64)(unsafe.Pointer(&t)) += uint64(d/time.Second) << 30
	return t
}

// An event is something that happens at a virtual time.
type event struct {
	at  time.Duration
	seq uint64
	run func()
}

// events are a binary heap, in the order of their time, and of their planning within one time.
type events struct {
	heap []event
	seq  uint64
}

func (e *event) before(other *event) bool {
	return e.at < other.at || e.at == other.at && e.seq < other.seq
}

func (q *events) plan(at time.Duration, run func()) {
	q.seq++
	q.heap = append(q.heap, event{at, q.seq, run})
	h := q.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// next removes the event that comes first.
func (q *events) next() event {
	h := q.heap
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], event{}
	h = h[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1].before(&h[down]) {
			down++
		}
		if !h[down].before(&h[i]) {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	q.heap = h
	return first
}
