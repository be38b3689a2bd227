package main

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
)

// A sample is what one request, or one window of requests, tells an estimator.
type sample struct {
	latency  time.Duration // from the arrival to the end
	inFlight int           // with the request, when it was admitted
	dropped  bool          // it met overload further on
}

// A limit is a policy that bounds the requests in flight by a number that an estimator may learn.
type limit struct {
	rejection *spillway.Rejection
	learn     func(sample) float64 // the limit after a sample; nil leaves it as it is

	mu       sync.Mutex
	limit    int
	inFlight int
}

func newLimit(name string, first int, learn func(sample) float64) *limit {
	return &limit{rejection: &spillway.Rejection{Policy: name, Reason: "limit reached"}, limit: first, learn: learn}
}

// Admit implements spillway.Policy. The Ticket is the number of requests in flight.
func (l *limit) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight >= l.limit {
		return 0, l.rejection
	}
	l.inFlight++
	return spillway.Ticket(l.inFlight), nil
}

// Done implements spillway.Policy.
func (l *limit) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	if l.learn == nil || res.Outcome != spillway.Success && res.Outcome != spillway.Dropped {
		return
	}
	x := sample{latency: res.Latency, inFlight: int(t), dropped: res.Outcome == spillway.Dropped}
	l.limit = int(l.learn(x))
}
