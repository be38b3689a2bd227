package policytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
)

// A tampered is a policy whose methods are tampered with.
type tampered struct {
	spillway.Policy
	admit func(ctx context.Context, r spillway.Request) (spillway.Ticket, error)
	done  func(r spillway.Request, t spillway.Ticket, res spillway.Result)
}

func (b *tampered) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	if b.admit != nil {
		return b.admit(ctx, r)
	}
	return b.Policy.Admit(ctx, r)
}

func (b *tampered) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if b.done != nil {
		b.done(r, t, res)
		return
	}
	b.Policy.Done(r, t, res)
}

// withDone is p with another Done.
func withDone(p spillway.Policy, done func(spillway.Request, spillway.Ticket, spillway.Result)) spillway.Policy {
	return &tampered{Policy: p, done: done}
}

// refusing is ten slots that refuse with the error that refuse returns.
func refusing(refuse func(r spillway.Request) error) func() spillway.Policy {
	return func() spillway.Policy {
		s := &slots{limit: 10}
		return &tampered{Policy: s, admit: func(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
			t, err := s.Admit(ctx, r)
			if err != nil {
				return 0, refuse(r)
			}
			return t, nil
		}}
	}
}

func always(err error) func() spillway.Policy {
	return refusing(func(spillway.Request) error { return err })
}

// A brokenPolicy breaks one rule. The cases listed fail, and no other.
type brokenPolicy struct {
	name      string
	newPolicy func() spillway.Policy
	fails     []string
	says      string // in the report of the first of fails
	learns    bool
}

func TestBrokenPoliciesFail(t *testing.T) {
	for _, list := range [][]brokenPolicy{brokenBasics, brokenRejections, brokenGiving, brokenHistories, brokenQueues()} {
		for _, tc := range list {
			t.Run(tc.name, func(t *testing.T) {
				if race.Enabled && tc.fails[0] == "no-allocation" {
					t.Skip("the case under test is skipped under the race detector, which allocates on its own account")
				}
				// A small Burst is enough, and quicker under the race detector.
				r := record(t, tc.newPolicy, &Options{Burst: 200, Learns: tc.learns})
				require.ElementsMatch(t, tc.fails, r.failedCases(), "%v", r.failed)
				require.Contains(t, r.failed[tc.fails[0]], tc.says)
				require.Contains(t, r.failed[tc.fails[0]], "why it matters: ")
			})
		}
	}
}

var theOne = &slots{limit: 10}

var sink atomic.Pointer[[]byte]

var brokenBasics = []brokenPolicy{
	{
		name:      "the same policy each time",
		newPolicy: func() spillway.Policy { return theOne },
		fails:     []string{"new-policy"}, says: "the same policy twice",
	},
	{
		name:      "a nil pointer",
		newPolicy: func() spillway.Policy { return (*slots)(nil) },
		fails:     []string{"new-policy"}, says: "returned nil",
	},
	{
		name: "waits for a slot without a method Queues",
		newPolicy: func() spillway.Policy {
			sem := make(chan struct{}, 10)
			return &tampered{
				admit: func(context.Context, spillway.Request) (spillway.Ticket, error) {
					sem <- struct{}{}
					return 0, nil
				},
				done: func(spillway.Request, spillway.Ticket, spillway.Result) { <-sem },
			}
		},
		fails: []string{"no-blocking"}, says: "a new policy: Admit or Done blocks",
	},
	{
		name: "sleeps to slow down who is refused",
		newPolicy: refusing(func(spillway.Request) error {
			time.Sleep(time.Microsecond) // the fault to be found, in virtual time
			return refusal
		}),
		fails: []string{"no-blocking"}, says: "Admit or Done blocks",
	},
	{
		name: "starts a goroutine that nobody can end",
		newPolicy: func() spillway.Policy {
			b := newBeating()
			return &tampered{Policy: b}
		},
		fails: []string{"no-blocking"}, says: "goroutines of the policy outlive it",
	},
	{
		name: "issues the last ticket",
		newPolicy: func() spillway.Policy {
			return &tampered{Policy: open{}, admit: func(context.Context, spillway.Request) (spillway.Ticket, error) {
				return ^spillway.Ticket(0), nil
			}}
		},
		fails: []string{"ticket"}, says: "0xffffffffffffffff",
	},
	{
		name: "allocates to admit",
		newPolicy: func() spillway.Policy {
			s := &slots{limit: 10}
			return &tampered{Policy: s, admit: func(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
				t, err := s.Admit(ctx, r)
				if err == nil {
					b := make([]byte, 8)
					sink.Store(&b)
				}
				return t, err
			}}
		},
		fails: []string{"no-allocation"}, says: "Admit and Done with outcome ignored allocate 2 times",
	},
	{
		name: "allocates to end what failed",
		newPolicy: func() spillway.Policy {
			s := &slots{limit: 10}
			return withDone(s, func(r spillway.Request, t spillway.Ticket, res spillway.Result) {
				if res.Outcome == spillway.Failure {
					b := make([]byte, 8)
					sink.Store(&b)
				}
				s.Done(r, t, res)
			})
		},
		fails: []string{"no-allocation"}, says: "Admit and Done with outcome failure allocate 2 times",
	},
	{
		name: "makes a Rejection for each request",
		newPolicy: refusing(func(spillway.Request) error {
			return &spillway.Rejection{Policy: "test", Reason: "full"}
		}),
		fails: []string{"no-allocation"}, says: "Admit allocates 1 times to refuse",
	},
}

var (
	errFull    = errors.New("full")
	errWrapped = fmt.Errorf("wrapped: %w", refusal)
)

var brokenRejections = []brokenPolicy{
	{
		name:      "an error of its own",
		newPolicy: always(errFull),
		fails:     []string{"rejection"}, says: "want a *spillway.Rejection",
	},
	{
		name:      "a wrapped Rejection",
		newPolicy: always(errWrapped),
		fails:     []string{"rejection"}, says: "refused with a *fmt.wrapError",
	},
	{
		name:      "the error of a ctx that has not ended",
		newPolicy: always(context.DeadlineExceeded),
		fails:     []string{"rejection"}, says: "refused with a context.deadlineExceededError",
	},
	{
		name:      "a nil Rejection",
		newPolicy: always((*spillway.Rejection)(nil)),
		fails:     []string{"rejection"}, says: "a nil *spillway.Rejection",
	},
	{
		name:      "no Policy",
		newPolicy: always(&spillway.Rejection{Reason: "full"}),
		fails:     []string{"rejection"}, says: `has Policy "" and Reason "full"`,
	},
	{
		name:      "no Reason",
		newPolicy: always(&spillway.Rejection{Policy: "test"}),
		fails:     []string{"rejection"}, says: `has Policy "test" and Reason ""`,
	},
	{
		name:      "RetryAfter in the past",
		newPolicy: always(&spillway.Rejection{Policy: "test", Reason: "full", RetryAfter: -1}),
		fails:     []string{"rejection"}, says: "has RetryAfter -1ns",
	},
	{
		name: "numbers in the Reason",
		newPolicy: func() spillway.Policy {
			var made []*spillway.Rejection
			for i := range 100 {
				made = append(made, &spillway.Rejection{Policy: "test", Reason: fmt.Sprintf("%d in flight", i)})
			}
			var n atomic.Uint64
			return refusing(func(spillway.Request) error { return made[n.Add(1)%100] })()
		},
		fails: []string{"rejection"}, says: "gave 17 different reasons",
	},
	{
		name: "changes a Rejection it handed out",
		newPolicy: func() spillway.Policy {
			var mu sync.Mutex
			own := *refusal
			return refusing(func(r spillway.Request) error {
				mu.Lock()
				defer mu.Unlock()
				own.RetryAfter = time.Second - time.Duration(r.Arrived.Nanosecond())
				return &own
			})()
		},
		fails: []string{"rejection"}, says: "publish a new one instead",
	},
}
