package lock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

// Requests go on when Redis is away. When it is back, without its memory or with it, it soon knows of all of them again, even
// if they are more than the limit.
func TestRequestsGetTheirLeasesBack(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*redistest.Server) (back func()){
		"restarted":     func(s *redistest.Server) func() { s.Kill(); return s.Restart },
		"hanging":       func(s *redistest.Server) func() { s.Pause(); return s.Resume },
		"lost its data": func(s *redistest.Server) func() { s.Kill(); s.Restart(); s.Do("FLUSHALL"); return func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			o := Options{Limit: 4, Nodes: 2, Fallback: cluster.Divide, TTL: time.Second, Timeout: 100 * time.Millisecond, Breaker: quick()}
			a := semaphoreAt(t, server.Addr(), o)
			b := semaphoreAt(t, server.Addr(), o)
			r := spillway.Request{Key: "k"}
			var tickets []spillway.Ticket
			admit := func(s *Semaphore) (err error) {
				ticket, err := s.Admit(t.Context(), r)
				if err == nil && s == a {
					tickets = append(tickets, ticket)
				}
				return err
			}
			for range 3 {
				require.Eventually(t, func() bool { return admit(a) == nil }, 20*time.Second, time.Millisecond)
			}
			back := away(server)
			if name != "lost its data" {
				requireFull(t, admit(a), "limit reached") // it has more than its part
				require.NoError(t, admit(b))
				require.NoError(t, admit(b))
				requireFull(t, admit(b), "limit reached")
				require.Eventually(t, func() bool { return a.Stats().Lapsed == 3 }, 20*time.Second, 10*time.Millisecond)
			}
			back()
			want := 3 + b.Stats().InFlight
			requireHeld(t, a, want)
			if want > o.Limit {
				requireFull(t, admit(a), "limit reached")
				requireFull(t, admit(b), "limit reached")
			}
			for range 2 { // they keep their leases
				redistest.Pause(o.TTL)
				requireHeld(t, a, want)
			}
			for _, ticket := range tickets {
				a.Done(r, ticket, spillway.Result{})
			}
			requireHeld(t, a, want-len(tickets))
			require.NoError(t, b.Close())
			requireHeld(t, a, 0)
		})
	}
}

// A process that alone runs as many requests as all may run does not ask Redis.
func TestAFullProcessDoesNotAskRedis(t *testing.T) {
	server := redistest.Start(t)
	s := semaphoreAt(t, server.Addr(), Options{Limit: 2, TTL: time.Minute})
	r := spillway.Request{Key: "k"}
	var last spillway.Ticket
	for range 2 {
		ticket, err := s.Admit(t.Context(), r)
		require.NoError(t, err)
		last = ticket
	}
	before := redistest.CommandCalls(t, server.Client(), "evalsha")
	for range 50 {
		_, err := s.Admit(t.Context(), r)
		requireFull(t, err, "limit reached")
	}
	require.Equal(t, before, redistest.CommandCalls(t, server.Client(), "evalsha"))
	_, err := s.Admit(t.Context(), spillway.Request{Key: "other"})
	require.NoError(t, err)
	s.Done(r, last, spillway.Result{})
	require.Eventually(t, func() bool { _, err := s.Admit(t.Context(), r); return err == nil }, 20*time.Second, time.Millisecond)
}

// A renewal that overtakes the release of its request does not keep the permit.
func TestARenewalAfterTheReleaseIsGivenBack(t *testing.T) {
	server := redistest.Start(t)
	s := semaphoreAt(t, server.Addr(), Options{Limit: 2, TTL: time.Hour})
	r := spillway.Request{Key: "k"}
	ticket, err := s.Admit(t.Context(), r)
	require.NoError(t, err)
	s.mu.Lock()
	p := s.permits[uint64(ticket)]
	s.mu.Unlock()
	s.Done(r, ticket, spillway.Result{})
	requireHeld(t, s, 0)
	s.renewSome([]renewal{{kind{"k", true}, []*permit{p}}}) // as if it had been on its way
	requireHeld(t, s, 0)
	require.Eventually(t, func() bool { return s.Stats().Returning == 0 }, 20*time.Second, time.Millisecond)
}
