package breaker_test

import (
	"container/heap"
	"context"
	"testing"
	"time"

	"github.com/spillway-go/spillway"
)

// A sim runs calls to one dependency through a policy in virtual time, on one goroutine.
type sim struct {
	p          spillway.Policy
	now        time.Time
	dependency func(at time.Duration) (latency time.Duration, o spillway.Outcome)
	ends       ends
	done       func(at time.Duration, o spillway.Outcome)

	asked, sent, broken int // calls wanted, calls that reached the dependency, those that did not succeed
}

type end struct {
	at time.Time
	c  call
	o  spillway.Outcome
}

type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (s *sim) at() time.Duration { return s.now.Sub(t0) }

// advance lets time pass to at, and calls end.
func (s *sim) advance(at time.Duration) {
	to := t0.Add(at)
	for len(s.ends) > 0 && !s.ends[0].at.After(to) {
		e := heap.Pop(&s.ends).(end)
		s.now = e.at
		s.p.Done(e.c.r, e.c.t, spillway.Result{Outcome: e.o, Latency: e.at.Sub(e.c.r.Arrived)})
		if s.done != nil {
			s.done(s.at(), e.o)
		}
	}
	s.now = to
}

// call wants one call and reports whether the policy let it through.
func (s *sim) call() bool {
	s.asked++
	r := spillway.Request{Arrived: s.now}
	t, err := s.p.Admit(context.Background(), r)
	if err != nil {
		return false
	}
	s.sent++
	latency, o := s.dependency(s.at())
	if o != spillway.Success {
		s.broken++
	}
	heap.Push(&s.ends, end{s.now.Add(latency), call{r, t}, o})
	return true
}

// run wants rate calls per second from the time it is now to the given, and returns for each second the share let through.
func (s *sim) run(to time.Duration, rate int) (shares []float64) {
	step := time.Second / time.Duration(rate)
	second, admitted := s.at()/time.Second, 0
	for at := s.at(); at < to; at += step {
		s.advance(at)
		if sec := at / time.Second; sec != second {
			shares = append(shares, float64(admitted)/float64(rate))
			second, admitted = sec, 0
		}
		if s.call() {
			admitted++
		}
	}
	s.advance(to)
	return append(shares, float64(admitted)/float64(rate))
}

// recovered returns after how many seconds all shares are at least 99 %.
func recovered(shares []float64) (seconds int) {
	for i, s := range shares {
		if s < 0.99 {
			seconds = i + 1
		}
	}
	return seconds
}

// upDown is a dependency that answers in 20 ms, except while it is down: then it answers so.
func upDown(from, to, latency time.Duration, o spillway.Outcome) func(time.Duration) (time.Duration, spillway.Outcome) {
	return func(at time.Duration) (time.Duration, spillway.Outcome) {
		if at >= from && at < to {
			return latency, o
		}
		return 20 * time.Millisecond, spillway.Success
	}
}

func newSim(_ testing.TB, p spillway.Policy, d func(time.Duration) (time.Duration, spillway.Outcome)) *sim {
	return &sim{p: p, now: t0, dependency: d}
}
