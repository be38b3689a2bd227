package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// Package policytest drives policies in a bubble of virtual time, into which a real Redis does not fit. What of the contract
// does not depend on the time is checked here, in real time, of every policy of this package.
func TestContract(t *testing.T) {
	const room = 6
	s := redistest.Start(t)
	client := patient(t, s.Addr())
	for name, p := range map[string]func(t *testing.T) spillway.Policy{
		"limit": func(t *testing.T) spillway.Policy {
			return newLimit(t, client, LimitOptions{Name: t.Name(), Rules: []Rule{Bucket(limiter.BucketOptions{Rate: limiter.Per(room, time.Hour)})}, Timeout: 10 * time.Second})
		},
		"quota": func(t *testing.T) spillway.Policy {
			return newQuota(t, QuotaOptions{Client: client, Rate: limiter.Per(room, time.Hour), Name: "contract", Timeout: 10 * time.Second})
		},
		"semaphore": func(t *testing.T) spillway.Policy {
			return semaphoreAt(t, s.Addr(), SemaphoreOptions{Limit: room, TTL: time.Minute, Timeout: 10 * time.Second})
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
