package policytest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/policytest"
)

// A Brownout is the policy of docs/howto/write-policy.md.
type Brownout struct{ Below atomic.Int64 }

var refusal = &spillway.Rejection{Policy: "brownout", Reason: "switched off", RetryAfter: 30 * time.Second}

func (b *Brownout) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	if int64(r.Priority) < b.Below.Load() {
		return 0, refusal
	}
	return 0, nil
}

// Done does nothing: a Brownout counts nothing and learns nothing.
func (b *Brownout) Done(spillway.Request, spillway.Ticket, spillway.Result) {}

func TestBrownout(t *testing.T) {
	policytest.Run(t, func() spillway.Policy {
		b := new(Brownout)
		b.Below.Store(int64(spillway.Critical))
		return b
	}, nil)
}
