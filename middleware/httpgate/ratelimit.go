package httpgate

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
)

// maxLimits is the greatest number of limits in one answer. It equals the greatest number of policies in a Gate.
const maxLimits = 8

// A QuotaFunc returns the tokens left at now for the client that sent r, such as the method Quota of a limit of package
// limiter, alone or per key. It may be called concurrently, and must be as cheap as Admit of a policy.
type QuotaFunc func(now time.Time, r spillway.Request) spillway.Quota

// A RateLimit writes the tokens left for a client into the header of every answer, so that a client that reads it can
// avoid refusals. It is opt-in: [Options.RateLimit]. A caller of [spillway.Gate.Enter] without a [Middleware] calls Set
// itself.
//
// It reports limits that are promised to the client, such as those of package limiter. Do not use it for an adaptive
// policy: its limit changes every second, and is not the share of one client.
//
// A RateLimit must not be changed or copied once it is in use. Set may be called concurrently.
type RateLimit struct {
	// Limits are the limits to report, 1 to 8: the methods Quota of policies of the gate, because each gets the same
	// Request as the gate. Their names should differ, because clients distinguish them by name.
	Limits []QuotaFunc

	// Draft writes the fields of draft-ietf-httpapi-ratelimit-headers-10 of the IETF, structured fields (RFC 9651) with
	// an item for each limit:
	//
	//	RateLimit-Policy: "second";q=10;w=1, "day";q=5000;w=86400
	//	RateLimit: "second";r=9;t=1, "day";r=4711;t=3600
	//
	// The limit gives q requests, or units of cost, in w seconds. r of them remain, and there will be more in t
	// seconds. Both times are whole seconds, rounded up, and q is the amount for the rounded window. A limit without a
	// window has no w, and a limit that never gives more has no t.
	//
	// If both Draft and X are false, Draft is true.
	Draft bool
	// X writes X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, the q, r and t of the one limit that has
	// the least remaining. No document defines them: with some services Reset is a date, here it is a number of seconds
	// from now.
	X bool

	policies [policySlots]atomic.Pointer[policies]
}

// validate returns an error that names the field and its value.
func (l *RateLimit) validate() error {
	if len(l.Limits) == 0 || len(l.Limits) > maxLimits {
		return fmt.Errorf("httpgate: RateLimit: Limits: must be 1 to %d, got %d", maxLimits, len(l.Limits))
	}
	for _, q := range l.Limits {
		if q == nil {
			return errors.New("httpgate: RateLimit: Limits: must not be nil, got nil")
		}
	}
	return nil
}

// Set writes the fields into h, the header of the answer to r, with what remains at now. The error is the gate's
// decision about r: nil if it was admitted. Set returns the error. But if a limit stays exhausted for longer than the
// RetryAfter of the rejection, Set returns a copy with a greater RetryAfter.
//
// So a Retry-After built from the result is never earlier than the t of any limit. To ensure this, Set omits a later t
// of a limit that has enough left for r. If r ended without a rejection, because its client is gone, Set does nothing.
// Set keeps fields of an outer gate: it adds to draft fields, and replaces X fields only if less remains.
//
// Set allocates the text and its place in h, and formats only changed values. If r was refused and the text is the same
// as in the last refusal, it does neither.
func (l *RateLimit) Set(h http.Header, now time.Time, r spillway.Request, err error) error {
	var rej *spillway.Rejection
	if err != nil {
		if rej = spillway.RejectionOf(err); rej == nil {
			return err
		}
	}
	var room [maxLimits]figures
	figs := l.read(room[:0], now, r)
	if len(figs) == 0 {
		return err
	}
	if rej != nil {
		if wait := holdBack(figs, int64(max(r.Cost, 1)), rej.RetryAfter); wait > rej.RetryAfter {
			later := *rej
			later.RetryAfter = wait
			err = &later
		}
	}
	l.write(h, figs, rej != nil)
	return err
}

// tellRefused writes the fields into the answer to a request that the gate refused with err, and returns the error to
// report.
func (m *Middleware) tellRefused(w http.ResponseWriter, r spillway.Request, err error) error {
	if m.o.RateLimit == nil {
		return err
	}
	return m.o.RateLimit.Set(w.Header(), time.Now(), r, err)
}

// tellAdmitted writes the fields into the answer to a request that the gate admitted. The permit is not lost if a
// user's function panics.
func (m *Middleware) tellAdmitted(w http.ResponseWriter, r spillway.Request, permit *spillway.Permit) {
	if m.o.RateLimit == nil {
		return
	}
	told := false
	defer func() {
		if !told {
			permit.Done(spillway.Failure)
		}
	}()
	arrived := permit.Arrived()
	now := arrived.Add(time.Since(arrived)) // cheaper than time.Now, which reads two clocks
	_ = m.o.RateLimit.Set(w.Header(), now, r, nil)
	told = true
}

// read appends the figures of the limits that have something to report.
func (l *RateLimit) read(figs []figures, now time.Time, r spillway.Request) []figures {
	for _, quota := range l.Limits[:min(len(l.Limits), maxLimits)] {
		if left := quota(now, r); left.Name != "" {
			figs = append(figs, newFigures(&left))
		}
	}
	return figs
}

// holdBack returns how long a refused client should wait: as long as the rejection says, or until no limit is exhausted
// for a request of that cost. It hides each later t, because clients may use any t as a time to wait.
func holdBack(figs []figures, cost int64, told time.Duration) time.Duration {
	for i := range figs {
		if f := &figs[i]; f.remaining < cost && f.t >= 0 {
			told = max(told, f.reset)
		}
	}
	bar := max(seconds(told), 1)
	for i := range figs {
		if figs[i].t > bar {
			figs[i].t = -1
		}
	}
	return told
}
