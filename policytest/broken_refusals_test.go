package policytest

import (
	"context"

	"github.com/spillway-go/spillway"
)

// refusedAs wraps p so that what was Refused counts as o.
func refusedAs(p spillway.Policy, o spillway.Outcome) spillway.Policy {
	return withDone(p, func(r spillway.Request, t spillway.Ticket, res spillway.Result) {
		if res.Outcome == spillway.Refused {
			res.Outcome = o
		}
		p.Done(r, t, res)
	})
}

var brokenGiving = []brokenPolicy{
	{
		name: "keeps the slot of who was Refused",
		newPolicy: func() spillway.Policy {
			s := &slots{limit: 10}
			return withDone(s, func(r spillway.Request, t spillway.Ticket, res spillway.Result) {
				if res.Outcome != spillway.Refused {
					s.Done(r, t, res)
				}
			})
		},
		fails: []string{"gives-back", "random-orders", "arrival-order", "concurrent"},
		says:  "it admits, but not the next after 10 at the same instant that were Refused",
	},
	{
		name:      "keeps the tokens of who was Refused",
		newPolicy: func() spillway.Policy { return refusedAs(newBucket(), spillway.Ignored) },
		fails:     []string{"gives-back"},
		says:      "not the next after 20",
	},
	{
		name: "tells a slot in flight for who was Refused",
		newPolicy: func() spillway.Policy {
			s := &tellingSlots{slots{limit: 1 << 30}}
			return tellingWithDone(s, func(r spillway.Request, t spillway.Ticket, res spillway.Result) {
				if res.Outcome != spillway.Refused {
					s.Done(r, t, res)
				}
			})
		},
		learns: true,
		fails:  []string{"gives-back", "random-orders", "arrival-order", "concurrent"},
		says:   "it has 0 in flight, and 400 after requests came and were Refused",
	},
	{
		name: "keeps the probe of who was Refused",
		newPolicy: func() spillway.Policy {
			b := &breaker{}
			return withDone(b, func(r spillway.Request, t spillway.Ticket, res spillway.Result) {
				if res.Outcome != spillway.Refused {
					b.Done(r, t, res)
				}
			})
		},
		fails: []string{"gives-back", "random-orders"},
		says:  "a policy that saw failures and a pause, from 2026: it admits, but not the next after 1 ",
	},
	{
		name:      "takes Refused for a failure",
		newPolicy: func() spillway.Policy { return refusedAs(&breaker{}, spillway.Failure) },
		fails:     []string{"gives-back"},
		says:      "a new policy, from 2026: it admits, but not the next after 5 ",
	},
	{
		name:      "takes Refused for a success",
		newPolicy: func() spillway.Policy { return refusedAs(&breaker{}, spillway.Success) },
		fails:     []string{"gives-back"},
		says:      "a policy that saw failures and a pause, from 2026: it admits 1 at one instant, but all of 200 if",
	},
	{
		name: "charges tokens for a refusal",
		newPolicy: func() spillway.Policy {
			b := newBucket()
			return &tampered{Policy: b, admit: func(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
				t, err := b.Admit(ctx, r)
				if err != nil {
					b.mu.Lock()
					defer b.mu.Unlock()
					b.tokens = max(b.tokens-1, -100)
				}
				return t, err
			}}
		},
		fails: []string{"refusal-changes-nothing"},
		says:  "20ms after the end of what it had admitted it admits 1, but 0 if it had refused 200 more",
	},
	{
		name: "stays open for as long as somebody asks",
		newPolicy: func() spillway.Policy {
			b := &breaker{}
			refused := 0
			return &tampered{Policy: b, admit: func(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
				t, err := b.Admit(ctx, r)
				if err != nil {
					b.mu.Lock()
					defer b.mu.Unlock()
					if refused++; refused%500 == 0 {
						b.until = b.until.Add(pause)
					}
				}
				return t, err
			}}
		},
		fails: []string{"refusal-changes-nothing"},
		says:  "a policy that saw failures, from 2026: 1m0s after",
	},
}
