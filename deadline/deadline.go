package deadline

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/deadline"
	"github.com/spillway-go/spillway/internal/name"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/stats"
)

// Options configure a [Policy]. The zero Options consists entirely of defaults.
type Options struct {
	// Name is the name of the Policy in rejections and Stats: printable ASCII, at most 64 bytes. If Name is empty, it is
	// "deadline".
	Name string
	// MaxRoutes is the number of routes whose latency is known. Requests of further routes, and of routes with names
	// longer than 256 bytes, are never refused, because routes differ too much to judge one by the others. If MaxRoutes
	// is 0, it is 1000; a full table takes about 200 KiB.
	MaxRoutes int
}

// A Policy is a [spillway.Policy] that refuses requests with less time left than the estimated 1 % quantile of the
// latency of their route. It refuses no request without a Timeout, and none of a route of which fewer than 20 requests
// have succeeded, unless the time has passed already. It is made by [New], safe for concurrent use, owns no goroutine
// and needs no Close.
//
// It learns from successes, and from requests that were cut off by their own timeout. Failures teach nothing, because
// errors are often fast. It admits a late request as a probe now and then, at most one per 10 ms and route, so that it
// notices when a route becomes faster. If no request of a route finishes, not even a probe, its estimate halves every
// 10 s. Callers with short timeouts only harm themselves: refused requests change nothing, and requests that were cut
// off early say nothing.
type Policy struct {
	name    string
	routes  *deadline.Estimator
	tooLate *spillway.Rejection
	refused stats.Counter
	probes  stats.Counter
}

// Stats is a snapshot of a [Policy].
type Stats struct {
	Name    string
	Routes  int   // routes whose latency is known or being learnt
	Refused int64 // requests refused
	Probes  int64 // late requests that ran all the same, to find out whether their route has become faster
	// ByReason counts the refused requests by reason.
	ByReason []spillway.Refusal
}

// New returns a Policy that knows no latency yet. If o is nil, it has the defaults. The error names the invalid field.
func New(o *Options) (*Policy, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	own, err := name.Or("deadline", opts.Name, "deadline")
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	if opts.MaxRoutes < 0 {
		return nil, fmt.Errorf("deadline: MaxRoutes must be at least 0, got %d", opts.MaxRoutes)
	}
	return &Policy{
		name:    own,
		routes:  spillway.Must(deadline.New(&deadline.Options{MaxKeys: opts.MaxRoutes})),
		tooLate: &spillway.Rejection{Policy: own, Reason: rejections.Deadline, TooLate: true},
	}, nil
}

// A Ticket has the id of the route, if it is known, and this bit if the request is a probe.
const (
	probe   = spillway.Ticket(1)
	idShift = 1
)

// Admit refuses r if its Timeout is shorter than the time in which one in a hundred requests of its Route finishes. The
// [spillway.Rejection] is TooLate, and its reason is "deadline too near".
func (p *Policy) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	if r.Timeout == 0 {
		return 0, nil
	}
	late, probes, id := p.routes.Late(r.Route, r.Arrived, r.Timeout)
	switch {
	case late:
		p.refused.Add(1)
		return 0, p.tooLate
	case probes:
		return spillway.Ticket(id)<<idShift | probe, nil
	}
	return spillway.Ticket(id) << idShift, nil
}

// Done ends a request that Admit admitted, and learns its latency if it succeeded or ran out of time.
func (p *Policy) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	id := int(t >> idShift)
	if t&probe != 0 {
		if res.Outcome == spillway.Refused {
			p.routes.Unprobe(id, r.Arrived)
			return
		}
		p.probes.Add(1)
	}
	switch {
	case id != 0 && res.Outcome == spillway.Success:
		p.routes.ObserveID(id, res.Latency, r.Arrived)
	case r.Route == "" || res.Outcome == spillway.Refused:
	case res.Outcome == spillway.Success:
		p.routes.Observe(r.Route, res.Latency, r.Arrived.Add(res.Latency))
	case r.Timeout > 0 && res.Latency >= r.Timeout:
		p.routes.Unfinished(r.Route, res.Latency, r.Arrived.Add(res.Latency))
	}
}

// Latency returns the latency that one request in a hundred of route stays under, and whether it is known.
func (p *Policy) Latency(route string) (d time.Duration, known bool) { return p.routes.Estimate(route) }

// Stats returns a snapshot of the counts. It may be called at any time.
func (p *Policy) Stats() Stats {
	s := Stats{Name: p.name, Routes: p.routes.Keys(), Refused: p.refused.Value(), Probes: p.probes.Value()}
	if s.Refused > 0 {
		s.ByReason = []spillway.Refusal{{Policy: p.name, Reason: p.tooLate.Reason, Count: s.Refused}}
	}
	return s
}

var _ spillway.Policy = (*Policy)(nil)
