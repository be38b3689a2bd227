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
	Unanswered int64             // calls that Redis did not answer or the breaker blocked
	Near       int64             // requests that Redis admitted and that left less than a fifth of a rule
	Breaker    breaker.State     // whether Redis is asked
}

// numSources is the number of sources.
const numSources = cluster.FromNobody + 1

// nearLimit is the part of a limit that is left when a request counts in Near.
const nearLimit = 0.2

type limitCounts struct {
	admitted                   [numSources]atomic.Int64
	refusals                   [numSources][maxRules]atomic.Int64 // by source, and by the rule that decided
	impossible, returned, lost atomic.Int64
	near                       atomic.Int64
}

func (c *limitCounts) decided(r *Result) {
	if !r.Allowed {
		c.refusals[r.Source][r.rule].Add(1)
		return
	}
	c.admitted[r.Source].Add(1)
	if r.Source == cluster.FromRedis && float64(r.Remaining) < nearLimit*float64(r.Limit) {
		c.near.Add(1)
	}
}

// Stats returns a snapshot of the counts. It may be called at any time.
func (l *Limit) Stats() Stats {
	if l.conn == nil {
		return Stats{}
	}
	s := Stats{
		Stats:      limiter.Stats{Name: l.name, Impossible: l.counts.impossible.Load(), Returned: l.counts.returned.Load()},
		Unanswered: l.counts.lost.Load(), Near: l.counts.near.Load(), Breaker: l.conn.Breaker.Stats().State,
	}
	var byRule [maxRules]int64
	for i := range numSources {
		s.AdmittedBy[i] = l.counts.admitted[i].Load()
		s.Admitted += s.AdmittedBy[i]
		for j := range byRule {
			n := l.counts.refusals[i][j].Load()
			s.RefusedBy[i] += n
			if i != cluster.FromNobody {
				byRule[j] += n
			}
		}
		s.Refused += s.RefusedBy[i]
	}
	for i, r := range l.refusals {
		s.ByReason = counted(s.ByReason, r, byRule[i])
	}
	s.ByReason = counted(s.ByReason, l.lost, s.RefusedBy[cluster.FromNobody])
	return s
}

// counted appends n refusals of r, if there are any.
func counted(to []spillway.Refusal, r *rejections.Set, n int64) []spillway.Refusal {
	if n == 0 {
		return to
	}
	return append(to, spillway.Refusal{Policy: r.Policy, Reason: r.Reason, Count: n})
}
