package spillway

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/enum"
)

// A Policy decides whether one request may run, and learns from how it went. Most callers do not invoke a Policy
// directly: they put it behind a [Gate]. Methods may be called concurrently.
//
// A Policy that may block in Admit, until there is room or ctx ends, has a further method, Queues() bool, which
// returns true. [New] calls it once. The [Gate] then reads the clock again after the Policy, so that the wait does not
// count as latency for the policies behind it.
//
// Package policytest checks the whole contract.
type Policy interface {
	// Admit reports whether r may run. A nil error admits r and obliges the caller to call Done once with the same r
	// and Ticket. Any other error refuses r, changes nothing and requires no Done. The error is a *[Rejection], or
	// ctx.Err() from a Policy that queues. The time of the decision is r.Arrived, which is never zero here. Admit does
	// not allocate, and does not block unless its Policy is documented to queue. Admit and Done must not panic, because
	// the panic would reach the caller of the Gate.
	Admit(ctx context.Context, r Request) (Ticket, error)
	// Done ends the request that Admit admitted as t, at the time r.Arrived plus res.Latency. Outcome [Refused] means
	// that a later Policy refused r, so r never ran: give back what Admit took and learn nothing.
	Done(r Request, t Ticket, res Result)
}

// A queuer is a Policy that may block in Admit.
type queuer interface{ Queues() bool }

// A Ticket is one word that a [Policy] keeps between Admit and Done, such as the generation of a breaker. Only the
// Policy that issued it knows its meaning. The greatest value, with all bits set, is reserved for wrappers such as
// package shadow. A Policy must not issue it.
type Ticket uint64

// A Request describes a request to a [Policy]. The zero Request is valid.
type Request struct {
	// Key names the owner of the request: a tenant or a user. If Key is empty, the owner is unknown.
	Key string
	// Route names the kind of the request, such as the pattern "GET /items/{id}" or the gRPC method. The server names
	// its routes, so there are few of them; a client must not be able to invent one. If Route is empty, it is unknown.
	Route string
	// Priority decides which requests go first when there is not room for all.
	Priority Priority
	// Cost is the number of tokens that the request consumes. If Cost is 0, it consumes 1. A negative Cost frees no
	// tokens.
	Cost int
	// Timeout is how long the caller waits for the answer, from Arrived on; a negative Timeout has passed. If Timeout is
	// 0, it is unknown. A [Gate] replaces it by the time until the deadline of ctx, if that is known and comes earlier.
	Timeout time.Duration
	// Arrived is when the request reached the Gate. If Arrived is zero, [Gate.Enter] reads the clock; a step of the
	// system's wall clock shows in it within a second. If the caller sets Arrived, waits in a queueing policy count as
	// latency.
	Arrived time.Time
}

// A Priority says which requests go first when there is not room for all. Requests with a high Priority are refused
// last. Any int is a valid Priority; policies may treat those beyond 12 and -12 in groups, in the right order. The
// named values leave gaps, like the levels of log/slog.
type Priority int

// The named priorities. Normal is zero, so that an unknown request is neither first nor last.
const (
	Sheddable Priority = -4 // refused first: batch work, prefetches, requests that will be repeated later
	Normal    Priority = 0
	Critical  Priority = 4 // refused last: requests that a user waits for, or that finish work already begun
)

// String returns the name of p, such as "normal" or "critical+2".
func (p Priority) String() string {
	name, base := "sheddable", Sheddable
	switch {
	case p >= Critical:
		name, base = "critical", Critical
	case p >= Normal:
		name, base = "normal", Normal
	}
	switch d := int(p - base); {
	case d > 0:
		return name + "+" + strconv.Itoa(d)
	case d < 0:
		return name + strconv.Itoa(d)
	}
	return name
}

// MarshalText returns p.String().
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the text of [Priority.String], such as "normal" or "critical+2".
func (p *Priority) UnmarshalText(text []byte) error {
	name, rest := string(text), ""
	if i := strings.IndexAny(name, "+-"); i >= 0 {
		name, rest = name[:i], name[i:]
	}
	base, ok := map[string]Priority{"sheddable": Sheddable, "normal": Normal, "critical": Critical}[name]
	if !ok {
		return fmt.Errorf("spillway: Priority: name must be sheddable, normal or critical, then nothing, +n or -n, got %q", text)
	}
	if rest != "" {
		n, err := strconv.Atoi(rest)
		if err != nil || (n > 0) != (base+Priority(n) > base) {
			return fmt.Errorf("spillway: Priority: offset after %s must be an integer in range, such as +2 or -1, got %q", name, text)
		}
		base += Priority(n)
	}
	*p = base
	return nil
}

// A Result says how an admitted request ended.
type Result struct {
	Outcome Outcome
	// Latency is the time from Request.Arrived to Done, never negative. It does not include waits in a queueing policy in front of
	// the policy, because the request reaches the policy after them.
	Latency time.Duration
	// RetryAfter is how long the downstream service asked clients to wait, for example in the Retry-After header of a
	// 503. It is 0 if the service did not ask.
	RetryAfter time.Duration
}

// A Quota is what a limit has left for one client. Package httpgate builds the RateLimit header fields from it.
type Quota struct {
	// Name is the name of the limit, in printable ASCII. If Name is empty, there is no limit to report.
	Name string
	// Limit is the greatest number of tokens in one Window, and Remaining is the number left now.
	Limit, Remaining int64
	// Window is the time to which Limit applies. If Window is not positive, the limit has no window.
	Window time.Duration
	// Reset is the time until more tokens are available. A Reset of 34 years or more means never.
	Reset time.Duration
}

// An Outcome says how a request ended. Only a [Success] may teach a policy what the service can do.
type Outcome uint8

// The outcomes. The zero Outcome says nothing about the service.
const (
	Ignored Outcome = iota // says nothing, for example because the client gave up
	Success                // answered well, which includes errors caused by the caller
	Failure                // answered badly: an error, a panic
	Dropped                // met overload downstream: a timeout, a 429 or a 503
	Refused                // never ran, because a later policy refused it; only a Gate reports it
)

const outcomeKind = "spillway: Outcome"

var outcomeNames = []string{"ignored", "success", "failure", "dropped", "refused"}

// String returns the name of o in lower case, such as "success", fit for a metric label.
func (o Outcome) String() string { return enum.String(outcomeKind, outcomeNames, o) }

// MarshalText returns o.String(), or an error if there is no such outcome.
func (o Outcome) MarshalText() ([]byte, error) { return enum.Marshal(outcomeKind, outcomeNames, o) }
