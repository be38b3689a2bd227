package httpgate

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/deadline"
	"github.com/spillway-go/spillway/stats"
)

// errTooLate refuses a request that would hardly finish before its deadline. Whatever the deadline is of, nothing has run:
// the answer is 503, after which a client may ask another replica, where 504 would leave open what had been done.
var errTooLate = &spillway.Rejection{Policy: "httpgate", Reason: "too late"}

// A Deadline refuses requests at once that would hardly finish in time, so that no work is done for clients that have left: a
// request that has less time left than the fastest of the others took, by the estimated 5 % quantile of the latency of
// its route. It learns from requests that succeed and from those cut short, and lets a probe through now and then, at
// most one per 10 ms and route, so that it notices when a route became faster.
//
// The gate does not see what is refused so, and no policy learns of it; [Stats] counts it.
type Deadline struct {
	// Route returns what r asks for: a name for the requests that take about equally long, or "" for one that is not to be
	// judged. One name for quick and slow routes refuses the quick ones by the latency of the slow ones. It must come from
	// a set of the service's own: a path is not a route. It runs before the gate, where r.Pattern is set only if the gate
	// stands behind the router; before a ServeMux, take [PatternKey].
	// Route must be set.
	Route func(r *http.Request) string

	// Timeout returns how long the client of r waits from now, or 0 if that is not known. What counts is the earlier of
	// it and the deadline of r.Context(). It refuses and does no more: it does not end the handler, since clients with
	// little patience could else make the policies believe that the service is failing. See [TimeoutHeader].
	// If Timeout is nil, the deadline of r.Context() counts alone.
	Timeout func(r *http.Request) time.Duration

	// MaxRoutes is the number of routes with an estimate of their own; further ones are not judged.
	// If MaxRoutes is 0, it is 1000.
	MaxRoutes int
}

// TimeoutHeader returns a [Deadline.Timeout] that believes a header of the client, such as
//
//	httpgate.TimeoutHeader("X-Request-Timeout", time.Second)
//	httpgate.TimeoutHeader("Connect-Timeout-Ms", time.Millisecond)
//	httpgate.TimeoutHeader("Grpc-Timeout", 0)
//
// The value is a decimal number of units. It may name its unit as grpc-timeout does: 5S, 100m, with H, M, S, m, u or n
// for hours to nanoseconds; it must, if unit is 0. No header, one of 0, and one that is not understood are no timeout.
func TimeoutHeader(name string, unit time.Duration) func(r *http.Request) time.Duration {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) time.Duration {
		if values := r.Header[name]; len(values) > 0 {
			return timeout(values[0], unit)
		}
		return 0
	}
}

// maxTimeout stands for every longer timeout, so that a time plus a timeout does not overflow.
const maxTimeout = 365 * 24 * time.Hour

// timeout returns the duration that the value of a timeout header means, or 0.
func timeout(value string, unit time.Duration) time.Duration {
	if value == "" {
		return 0
	}
	if named := unitOf(value[len(value)-1]); named != 0 {
		value, unit = value[:len(value)-1], named
	}
	return decimal(value, unit)
}

// unitOf returns the unit that grpc-timeout names with c, or 0.
func unitOf(c byte) time.Duration {
	switch c {
	case 'H':
		return time.Hour
	case 'M':
		return time.Minute
	case 'S':
		return time.Second
	case 'm':
		return time.Millisecond
	case 'u':
		return time.Microsecond
	case 'n':
		return time.Nanosecond
	}
	return 0
}

// maxDigits bounds what a client can make the gate read; grpc-timeout has at most 8.
const maxDigits = 32

// decimal returns s units, where s is digits with or without a fraction; or 0 if it is anything else.
func decimal(s string, unit time.Duration) time.Duration {
	if len(s) > maxDigits {
		return 0
	}
	total, scale := 0.0, 0.0 // scale is 0 until the point
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.' && scale == 0:
			scale = 1
		case c < '0' || c > '9':
			return 0
		case scale == 0:
			total = total*10 + float64(c-'0')
		default:
			scale /= 10
			total += float64(c-'0') * scale
		}
	}
	return time.Duration(min(total*float64(unit), float64(maxTimeout)))
}

// deadlines is a Deadline with what it has learnt. A nil one judges nothing.
type deadlines struct {
	Deadline
	latencies *deadline.Estimator
	refused   stats.Counter
}

func newDeadlines(o *Deadline) (*deadlines, error) {
	if o == nil {
		return nil, nil //nolint:nilnil // a nil one judges nothing
	}
	if o.Route == nil {
		return nil, errors.New("httpgate: Deadline.Route: must be set, got nil")
	}
	if o.MaxRoutes < 0 {
		return nil, fmt.Errorf("httpgate: Deadline.MaxRoutes: must be at least 0, got %d", o.MaxRoutes)
	}
	latencies := spillway.Must(deadline.New(&deadline.Options{MaxKeys: o.MaxRoutes}))
	return &deadlines{Deadline: *o, latencies: latencies}, nil
}

// judge returns the route of r, or "" if its latency is of no interest, and whether r should be refused. What has ended
// already is left to the gate.
func (d *deadlines) judge(r *http.Request, claimed bool) (route string, tooLate bool) {
	if d == nil || claimed { // how long a subscription stays open says nothing
		return "", false
	}
	if route = d.Route(r); route == "" {
		return "", false
	}
	by, ok := r.Context().Deadline()
	var wait time.Duration
	if d.Timeout != nil {
		wait = min(d.Timeout(r), maxTimeout)
	}
	if !ok && wait <= 0 {
		return route, false
	}
	now := time.Now()
	if waits := now.Add(wait); wait > 0 && (!ok || waits.Before(by)) {
		by = waits
	}
	if !d.latencies.TooLate(route, now, by) || r.Context().Err() != nil {
		return route, false
	}
	d.refused.Add(1)
	return route, true
}

// learn learns how a request of route went that ended now with outcome o, and took latency.
func (d *deadlines) learn(route string, r *http.Request, o spillway.Outcome, now time.Time, latency time.Duration) {
	switch {
	case o == spillway.Success:
		d.latencies.Observe(route, latency, now)
	case r.Context().Err() != nil:
		d.latencies.Unfinished(route, latency, now)
	}
}
