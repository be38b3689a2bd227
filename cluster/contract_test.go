package cluster_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/cluster/lease"
	"github.com/spillway-go/spillway/cluster/lock"
	"github.com/spillway-go/spillway/limiter"
)

// Package policytest cannot run these policies: a call of Redis allocates; the clock that counts is that of Redis, which does not
// follow the suite from one year to another; a Semaphore gives permits back in the background, so not at the same instant; and in
// the bubbles of the suite the deadlines of calls are virtual, while the server answers in real time. So what of the contract
// does not depend on the time is checked here, in real time, of every policy of this package and every kind of rule.
func TestContract(t *testing.T) {
	const room = 6
	s := redistest.Start(t)
	client := redistest.NewClient(t, s.Addr())
	limit := func(rules ...limiter.Rule) func(t *testing.T) spillway.Policy {
		return func(t *testing.T) spillway.Policy {
			return newLimit(t, exact.Options{Client: client, Name: t.Name(), Rules: rules, Timeout: 10 * time.Second})
		}
	}
	rules := []limiter.Rule{
		limiter.Bucket{Rate: limiter.Per(room, time.Hour), Burst: room},
		limiter.FixedWindow{Limit: room, Period: time.Hour},
		limiter.FixedWindow{Limit: room, Calendar: limiter.EveryMonth},
		limiter.SlidingWindow{Limit: room, Window: time.Hour},
		limiter.SlidingLog{Limit: room, Window: time.Hour},
	}
	for name, p := range map[string]func(t *testing.T) spillway.Policy{
		"bucket": limit(rules[0]), "fixed window": limit(rules[1]), "month": limit(rules[2]), "sliding window": limit(rules[3]),
		"sliding log": limit(rules[4]), "all rules": limit(rules...),
		"allowance": func(t *testing.T) spillway.Policy {
			l := newLimit(t, exact.Options{Client: client, Name: "daily", Rules: []limiter.Rule{limiter.FixedWindow{Limit: room, Period: time.Hour}}})
			a, err := exact.NewAllowance(&exact.AllowanceOptions{Limit: l, Nodes: 1, Chunk: 1}) // a greater chunk would leave too little for the others
			require.NoError(t, err)
			return a
		},
		"lease": func(t *testing.T) spillway.Policy {
			return newLease(t, lease.Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(room, time.Hour)}, Name: "contract", Timeout: 10 * time.Second})
		},
		"semaphore": func(t *testing.T) spillway.Policy {
			return newLock(t, lock.Options{Client: client, Limit: room, TTL: time.Minute, Timeout: 10 * time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) { keepsContract(t, p(t), room) })
	}
}

func keepsContract(t *testing.T, p spillway.Policy, room int) {
	t.Helper()
	r := spillway.Request{Key: "together", Arrived: time.Now()}
	tickets := together(t, p, r, room)
	_, err := p.Admit(t.Context(), r)
	var refused *spillway.Rejection
	require.ErrorAs(t, err, &refused)
	require.NotEmpty(t, refused.Policy)
	require.NotEmpty(t, refused.Reason)
	for _, ticket := range tickets {
		p.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
	}
	r.Key = "again"
	for range 5 * room { // what never ran has taken nothing
		var ticket spillway.Ticket
		require.Eventually(t, func() bool { // a permit comes back in the background
			var err error
			ticket, err = p.Admit(t.Context(), r)
			return err == nil
		}, 10*time.Second, time.Millisecond)
		p.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Key = "cancelled"
	_, err = p.Admit(ctx, r)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, spillway.ErrRejected)
	together(t, p, r, room) // the call that was cancelled took nothing
	oddRequests(t, p)
}

// oddRequests come from callers who send anything: none may make room by it, or hurt the policy.
func oddRequests(t *testing.T, p spillway.Policy) {
	t.Helper()
	result := spillway.Result{Outcome: spillway.Success}
	for _, r := range []spillway.Request{
		{}, {Key: "\xff{}:\n"}, {Key: strings.Repeat("k", 1<<20)}, {Key: "least", Priority: math.MinInt8}, {Key: "epoch", Arrived: time.Unix(0, 0)},
	} {
		ticket, err := p.Admit(t.Context(), r)
		require.NoError(t, err)
		p.Done(r, ticket, result)
	}
	_, counts := p.(*lock.Semaphore) // requests, whatever they cost
	for _, cost := range []int{-1, math.MinInt, math.MaxInt} {
		r := spillway.Request{Key: "odd", Cost: cost, Arrived: time.Now()}
		ticket, err := p.Admit(t.Context(), r)
		if counts {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, spillway.ErrRejected)
		}
		if err == nil {
			p.Done(r, ticket, result)
		}
	}
	p.Done(spillway.Request{Key: "together"}, math.MaxUint64, result) // of nobody
}

// together asks from many goroutines at once, and returns the tickets of those that were admitted: room of them.
func together(t *testing.T, p spillway.Policy, r spillway.Request, room int) (tickets []spillway.Ticket) {
	t.Helper()
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		odds atomic.Int64
	)
	for range 4 * room {
		all.Go(func() {
			ticket, err := p.Admit(t.Context(), r)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				tickets = append(tickets, ticket)
			} else if !errors.Is(err, spillway.ErrRejected) {
				odds.Add(1)
			}
		})
	}
	all.Wait()
	require.Zero(t, odds.Load(), "an error that is no refusal")
	require.Len(t, tickets, room)
	return tickets
}
