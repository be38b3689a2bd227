package policytest

import (
	"context"

	"github.com/spillway-go/spillway"
)

// Refuse returns a policy that refuses every request with a copy of r, for tests of what a service does then: its answer to the
// client, its fallback. If r.Policy is empty, it is "policytest". It is safe for concurrent use.
//
//	gate := spillway.New(policytest.Refuse(spillway.Rejection{Reason: "over quota", OverQuota: true}))
func Refuse(r spillway.Rejection) spillway.Policy {
	if r.Policy == "" {
		r.Policy = "policytest"
	}
	return &refuser{r}
}

type refuser struct{ rejection spillway.Rejection }

func (p *refuser) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	return 0, &p.rejection
}

func (*refuser) Done(spillway.Request, spillway.Ticket, spillway.Result) {}
