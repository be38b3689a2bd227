package policytest

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
)

// goid returns a number of the goroutine that calls it.
func goid(buf []byte) string { return string(buf[:runtime.Stack(buf, false)][:len("goroutine 1234")]) }

var brokenHistories = []brokenPolicy{
	{
		name: "keeps the books of one key by goroutine",
		newPolicy: func() spillway.Policy {
			s := &slots{limit: 10}
			var owners sync.Map
			return &tampered{
				admit: func(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
					t, err := s.Admit(ctx, r)
					if err == nil && r.Key == "a" {
						owners.Store(goid(make([]byte, 64)), true)
					}
					return t, err
				},
				done: func(r spillway.Request, t spillway.Ticket, res spillway.Result) {
					if r.Key == "a" {
						if _, ok := owners.Load(goid(make([]byte, 64))); !ok {
							return
						}
					}
					s.Done(r, t, res)
				},
			}
		},
		fails: []string{"done-anyhow"}, says: "if they ended by Done in another goroutine",
	},
	{
		name: "forgets a request that is dropped late",
		newPolicy: func() spillway.Policy {
			s := &slots{limit: 10}
			return withDone(s, func(r spillway.Request, t spillway.Ticket, res spillway.Result) {
				if res.Outcome != spillway.Dropped || res.Latency < 3*time.Second || res.Latency == math.MaxInt64 {
					s.Done(r, t, res)
				}
			})
		},
		fails: []string{"random-orders"}, says: "a new one admits 10",
	},
	{
		name: "forgets a request that is dropped late, and tells",
		newPolicy: func() spillway.Policy {
			s := &tellingSlots{slots{limit: 10}}
			return tellingWithDone(s, func(r spillway.Request, t spillway.Ticket, res spillway.Result) {
				if res.Outcome != spillway.Dropped || res.Latency < 3*time.Second || res.Latency == math.MaxInt64 {
					s.Done(r, t, res)
				}
			})
		},
		learns: true,
		fails:  []string{"random-orders"}, says: "in flight, while",
	},
	{
		name: "is worn out by late drops, and learns",
		newPolicy: func() spillway.Policy {
			s := &slots{limit: 10}
			return withDone(s, func(r spillway.Request, t spillway.Ticket, res spillway.Result) {
				if res.Outcome != spillway.Dropped || res.Latency < 3*time.Second || res.Latency == math.MaxInt64 {
					s.Done(r, t, res)
				}
			})
		},
		learns: true,
		fails:  []string{"random-orders"}, says: "a long pause later the policy admits none of 200",
	},
	{
		name: "gives back what was ignored twice",
		newPolicy: func() spillway.Policy {
			s := &tellingSlots{slots{limit: 10}}
			return tellingWithDone(s, func(r spillway.Request, t spillway.Ticket, res spillway.Result) {
				s.Done(r, t, res)
				if res.Outcome == spillway.Ignored && cost(r) == 3 {
					s.Done(r, t, res)
				}
			})
		},
		fails: []string{"random-orders", "arrival-order", "concurrent"}, says: "in flight, while",
	},
	{
		name: "indexes by a time that went backwards",
		newPolicy: func() spillway.Policy {
			s := &slots{limit: 10}
			var began time.Time
			var once sync.Once
			var slots [1 << 16]atomic.Int32
			return &tampered{Policy: s, admit: func(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
				once.Do(func() { began = r.Arrived.Add(-time.Hour) })
				slots[int(r.Arrived.Sub(began)/time.Second)%len(slots)].Add(1)
				return s.Admit(ctx, r)
			}}
		},
		fails: []string{"arrival-order", "odd-requests"}, says: "the policy panicked: runtime error: index out of range",
	},
	{
		name: "loses updates",
		newPolicy: func() spillway.Policy {
			var used atomic.Int64
			var ending atomic.Bool
			return &tampered{
				admit: func(context.Context, spillway.Request) (spillway.Ticket, error) {
					if used.Add(1) > 10 {
						used.Add(-1)
						return 0, refusal
					}
					return 0, nil
				},
				done: func(spillway.Request, spillway.Ticket, spillway.Result) {
					if !ending.CompareAndSwap(false, true) {
						return // lost, because another request is about to end
					}
					runtime.Gosched()
					used.Add(-1)
					ending.Store(false)
				},
			}
		},
		fails: []string{"concurrent"}, says: "8 goroutines, from 2026: every request was ended",
	},
	{
		name: "makes room by a negative cost",
		newPolicy: func() spillway.Policy {
			s := &slots{limit: 10}
			return &tampered{
				admit: func(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
					if r.Cost >= 0 {
						return s.Admit(ctx, r)
					}
					s.mu.Lock()
					defer s.mu.Unlock()
					s.used += r.Cost
					return 0, nil
				},
				done: func(r spillway.Request, t spillway.Ticket, res spillway.Result) {
					if r.Cost >= 0 {
						s.Done(r, t, res)
						return
					}
					s.mu.Lock()
					defer s.mu.Unlock()
					s.used -= r.Cost
				},
			}
		},
		fails: []string{"odd-requests"}, says: "cost -1, from 2026: the policy admits 10 at one instant, but 11 while such",
	},
	{
		name: "overflows by a huge cost",
		newPolicy: func() spillway.Policy {
			s := &slots{limit: 10}
			return &tampered{Policy: s, admit: func(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.used+1+cost(r) > s.limit+1 {
					return 0, refusal
				}
				s.used += cost(r)
				return 0, nil
			}}
		},
		fails: []string{"odd-requests"}, says: "the greatest cost, from 2026",
	},
	{
		name: "has a table for priorities",
		newPolicy: func() spillway.Policy {
			var table [16]atomic.Int64
			return &tampered{Policy: open{}, admit: func(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
				table[r.Priority+8].Add(1)
				return 0, nil
			}}
		},
		fails: []string{"odd-requests"}, says: "the least priority, from 2026: the policy panicked",
	},
}

// A tamperedTelling is a tampered that tells what it has in flight.
type tamperedTelling struct {
	*tampered
	told *tellingSlots
}

func tellingWithDone(s *tellingSlots, done func(spillway.Request, spillway.Ticket, spillway.Result)) spillway.Policy {
	return &tamperedTelling{&tampered{Policy: s, done: done}, s}
}

func (b *tamperedTelling) InFlight() int { return b.told.Stats().InFlight }
