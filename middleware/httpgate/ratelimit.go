package httpgate

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
)

// maxLimits is the number of limits in one answer: as many as a Gate has policies.
const maxLimits = 8

// A Quoter is a limit that knows what it has left for a client. The rates and windows of package limiter are Quoters, alone
// or per key.
type Quoter interface {
	// Quota returns what is left at now for the client that sent r. It may be called concurrently, and has to be as cheap as
	// asking a policy.
	Quota(now time.Time, r spillway.Request) spillway.Quota
}

// A RateLimit writes what limits have left for a client into the header of its answer, served or refused, so that a client
// that reads it need never be refused. It is opt-in: [Options.RateLimit]. A caller of [spillway.Gate.Enter] without a
// [Middleware] calls Set itself.
//
// It reports limits that are promised to the client, such as those of package limiter. The limit of an adaptive policy changes
// every second, and is no share of a client.
//
// A RateLimit must not be changed or copied once it is in use. Set may be called concurrently.
type RateLimit struct {
	// Limits are the limits to tell of, 1 to 8. Each is asked about the Request that the gate was asked about, so it should
	// be a policy of that gate. Their names should differ, since clients tell them apart by name.
	Limits []Quoter
	// Fields are the header fields to write. If Fields is 0, it is DraftFields.
	Fields RateLimitFields

	policies [policySlots]atomic.Pointer[policies]
}

// RateLimitFields is a set of header fields.
type RateLimitFields uint8

const (
	// DraftFields are the fields of draft-ietf-httpapi-ratelimit-headers-10 of the IETF, structured fields (RFC 9651) with
	// an item for each limit:
	//
	//	RateLimit-Policy: "second";q=10;w=1, "day";q=5000;w=86400
	//	RateLimit: "second";r=9;t=1, "day";r=4711;t=3600
	//
	// The limit gives q requests, or what they cost, in w seconds. Of that r remain, and there will be more in t seconds.
	// Both are whole seconds, rounded up; q is what comes in that time. A limit without a window has no w, and one that
	// never gives more no t.
	DraftFields RateLimitFields = 1 << iota
	// XFields are X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, the q, r and t of the one limit that has
	// the least remaining. No document defines them: with some services Reset is a date, here it is a number of seconds
	// from now.
	XFields
)

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
	if l.Fields&^(DraftFields|XFields) != 0 {
		return fmt.Errorf("httpgate: RateLimit: Fields: must be DraftFields, XFields or both, got %#b", uint8(l.Fields))
	}
	return nil
}

// Set writes the fields into h, the header of the answer to r, with what remains at now. The error is what the gate said
// of r: nil if it was admitted. Set returns it; but if the client would meet an exhausted limit for longer than the
// RetryAfter of the rejection, it returns a copy with a greater one.
//
// So a Retry-After made of it is never earlier than the t of any limit: a limit that has enough left for r, and gives more
// only later than that, has no t. If r ended without a rejection, since its client is gone, Set does nothing. Fields that
// are there already, of a gate further out, are kept: draft fields are added to, X fields give way to those with less
// remaining.
//
// Set allocates the text and its place in h, and formats what changes only. If r was refused and it is what the last such
// answer said, it does neither.
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

// tellRefused writes the fields into the answer to a request that the gate refused with err, and returns what to say of it.
func (m *Middleware) tellRefused(w http.ResponseWriter, r spillway.Request, err error) error {
	if m.o.RateLimit == nil {
		return err
	}
	return m.o.RateLimit.Set(w.Header(), time.Now(), r, err)
}

// tellAdmitted writes the fields into the answer to a request that the gate admitted. The permit survives a Quoter of the
// user's that panics.
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

// read appends the figures of the limits that have something to tell.
func (l *RateLimit) read(figs []figures, now time.Time, r spillway.Request) []figures {
	for _, q := range l.Limits[:min(len(l.Limits), maxLimits)] {
		if left := q.Quota(now, r); left.Name != "" {
			figs = append(figs, newFigures(&left))
		}
	}
	return figs
}

// holdBack returns how long a refused client should wait: as long as the rejection says, or until no limit is exhausted for a request of
// that cost. It hides each t that is later, since clients may take any t for a time to wait.
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
