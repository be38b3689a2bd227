package exact

import (
	"sync/atomic"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/limiter"
)

// Stats is a snapshot of the decisions of a [Limit] in this process since it was made. Its counts cover all keys
// together.
type Stats struct {
	limiter.Stats

	AdmittedBy [numSources]int64 // requests let through, by [cluster.Source]: AdmittedBy[cluster.FromRedis], ...
	RefusedBy  [numSources]int64 // the same requests as in Refused, by [cluster.Source]
	Unanswered int64             // calls that Redis did not answer, or that the breaker blocked
	Near       int64             // requests that Redis admitted and that left less than a fifth of a rule
	Breaker    breaker.State     // whether Redis is asked
}

// numSources is the number of sources.
const numSources = cluster.FromNobody + 1

// nearLimit is the part of a limit that is left when a request counts in Near.
const nearLimit = 0.2

type limitCounts struct {
	admitted, refusals         [numSources]atomic.Int64
	byRule                     [maxRules + 1]atomic.Int64 // refusals by the rule that decided; the last are those of the fallback alone
	impossible, returned, lost atomic.Int64
	near                       atomic.Int64
}

func (c *limitCounts) decided(r *Result) {
	if !r.Allowed {
		c.refused(r)
		return
	}
	c.admitted[r.Source].Add(1)
	if r.Source == cluster.FromRedis && float64(r.Remaining) < nearLimit*float64(r.Limit) {
		c.near.Add(1)
	}
}

func (c *limitCounts) refused(r *Result) {
	c.refusals[r.Source].Add(1)
	if r.Source == cluster.FromNobody {
		c.byRule[maxRules].Add(1)
	} else {
		c.byRule[r.rule].Add(1)
	}
}

// Stats returns a snapshot of the counts. It may be called at any time.
func (l *Limit) Stats() Stats {
	if l.conn == nil {
		return Stats{}
	}
	s := Stats{
		Stats:      limiter.Stats{Name: l.name, Impossible: l.counts.impossible.Load(), Returned: l.counts.returned.Load()},
		Unanswered: l.counts.lost.Load(), Near: l.counts.near.Load(), Breaker: l.conn.Breaker.State(),
	}
	for i := range numSources {
		s.AdmittedBy[i], s.RefusedBy[i] = l.counts.admitted[i].Load(), l.counts.refusals[i].Load()
		s.Admitted += s.AdmittedBy[i]
	}
	refused := func(rejections *rejections.Set, n int64) {
		if n > 0 {
			s.Refused += n
			s.ByReason = append(s.ByReason, spillway.Refusal{Policy: rejections.Policy, Reason: rejections.Reason, Count: n})
		}
	}
	for i, r := range l.refusals {
		refused(r, l.counts.byRule[i].Load())
	}
	refused(l.lost, l.counts.byRule[maxRules].Load())
	return s
}
