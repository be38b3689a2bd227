package spillway

import "context"

// Peek reports whether r would be refused now, and holds nothing: it returns nil if every policy would admit r, and else
// what [Gate.Enter] would return. It is for a caller that can refuse early and cheaply, before it has read a request that
// Enter will be asked about later. A refusal is counted as one of the Gate; a nil promises nothing, and is not counted.
//
// Peek asks each policy and gives back at once, so a request that was let through is asked about twice: a policy that
// refuses by chance does so more often, and what counts the admissions of one policy counts it twice. Peek does not ask
// the policies from the first [Queuer] on, and therefore never blocks. It does not allocate.
func (g *Gate) Peek(ctx context.Context, r Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.Arrived.IsZero() {
		r.Arrived = g.now()
	}
	p := Permit{req: r}
	n := 0
	defer func() { g.giveBack(&p, n) }() // also if a policy panics
	for i, policy := range g.policies {
		if g.queues&(1<<i) != 0 {
			break
		}
		t, err := policy.Admit(ctx, r)
		if err != nil {
			g.counts.refused(i, err)
			return err
		}
		p.tickets[i] = t
		n++
	}
	return nil
}
