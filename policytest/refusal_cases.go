package policytest

import (
	"context"
	"time"

	"github.com/spillway-go/spillway"
)

// maxReasons is how many reasons one policy may give. A Gate counts 64 apart for all its policies.
const maxReasons = 16

var rejectionCase = testCase{
	name: "rejection",
	why: "adapters choose status 429 or 503 and Retry-After by the *spillway.Rejection, metrics take Policy and Reason as labels" +
		" and so need them constant, and since one Rejection is shared by all who are refused, changing it is a data race.",
	run: func(c *check) {
		seen := refusals{c: c, values: map[*spillway.Rejection]spillway.Rejection{}, reasons: map[[2]string]bool{}}
		eachState(func(b base, s state) {
			d := c.reach(b, s)
			for range 30 {
				for i := range c.o.Burst {
					err := d.admit(d.next())
					if err == nil {
						continue
					}
					seen.add(err)
					if c.queues || i >= c.o.Burst/2 {
						break
					}
				}
				d.sleep(37 * time.Millisecond)
				seen.unchanged()
			}
			d.endAll(spillway.Failure)
			seen.unchanged()
		})
		if seen.n == 0 {
			c.neverRefused()
		}
	},
}

// refusals checks refusals and remembers them to see whether they change.
type refusals struct {
	c       *check
	n       int
	values  map[*spillway.Rejection]spillway.Rejection
	reasons map[[2]string]bool
}

func (s *refusals) add(err error) {
	s.n++
	rej, ok := err.(*spillway.Rejection)
	switch {
	case s.c.queues && err == context.DeadlineExceeded:
		return
	case !ok:
		s.c.fatalf("Admit refused with a %T (%v), want a *spillway.Rejection%s", err, err, orCtx(s.c))
	case rej == nil:
		s.c.fatalf("Admit refused with a nil *spillway.Rejection, which is an error that is not nil")
	case rej.Policy == "" || rej.Reason == "":
		s.c.fatalf("a Rejection has Policy %q and Reason %q, want both", rej.Policy, rej.Reason)
	case rej.RetryAfter < 0:
		s.c.fatalf("a Rejection has RetryAfter %v, want 0 for unknown or more", rej.RetryAfter)
	}
	if _, ok := s.values[rej]; !ok {
		s.values[rej] = *rej
	}
	s.reasons[[2]string{rej.Policy, rej.Reason}] = true
	if len(s.reasons) > maxReasons {
		s.c.fatalf("the policy gave %d different reasons, such as %q: a Reason is a constant, not a message", len(s.reasons), rej.Reason)
	}
}

func orCtx(c *check) string {
	if c.queues {
		return " or ctx.Err()"
	}
	return ""
}

// unchanged checks that no Rejection was changed since it was handed out.
func (s *refusals) unchanged() {
	for rej, was := range s.values {
		if *rej != was {
			s.c.fatalf("a Rejection was %+v when it was handed out, and became %+v: publish a new one instead", was, *rej)
		}
	}
}

var ticketCase = testCase{
	name: "ticket",
	why: "wrappers such as package shadow mark with the ticket of all bits set what the policy in them did not admit, and never" +
		" tell it how such a request went.",
	run: func(c *check) {
		eachState(func(b base, s state) {
			d := c.reach(b, s)
			for range 8 {
				d.tryN(min(c.o.Burst, 64))
				for _, h := range d.held {
					if h.t == ^spillway.Ticket(0) {
						c.fatalf("%s admitted a request with the ticket %#x", s.name, uint64(h.t))
					}
				}
				d.endAll(spillway.Success)
				d.sleep(time.Second)
			}
		})
	},
}

var givesBackCase = testCase{
	name: "gives-back",
	why: "Refused means that a policy further on turned the request away. Whatever it took and is not given back, a token, a" +
		" slot, the probe of a half-open breaker, is lost to the requests that would have run: one policy refusing starves all.",
	run: func(c *check) {
		refused := false
		eachState(func(b base, s state) {
			ref := c.reach(b, s)
			room, full := ref.fill()
			refused = refused || full
			if full && c.o.CountsRefusals {
				return
			}
			want := len(ref.held)
			d := c.reach(b, s)
			if want > 0 {
				d.takeAndGiveBack(b, s, ref.held[0].r)
			}
			if got := d.burst(); !c.same(got, want) {
				c.errorf("%s, from %s: it admits %s at one instant, but %s if other requests came and were Refused before",
					s.name, b.name, c.count(want), c.count(got))
				return
			}
			d = c.reach(b, s)
			d.tryN(room)
			d.endAll(spillway.Refused)
			if got := d.burst(); !c.same(got, want) {
				c.errorf("%s, from %s: it admits %s at one instant, but %s if as many came and were Refused before",
					s.name, b.name, c.count(want), c.count(got))
			}
		})
		if !refused && len(c.problems) == 0 {
			c.neverRefused()
		}
	},
}

// takeAndGiveBack has r, which is known to be admitted in this state, admitted and Refused over and over.
func (d *driver) takeAndGiveBack(b base, s state, r spillway.Request) {
	before, ok := d.inFlight()
	for i := range 2 * d.c.o.Burst {
		if err := d.admit(r); err != nil {
			if d.c.o.Slack == 0 {
				d.c.errorf("%s, from %s: it admits, but not the next after %d at the same instant that were Refused: %v", s.name, b.name, i, err)
				return
			}
			continue
		}
		d.end(len(d.held)-1, spillway.Refused)
	}
	if after, _ := d.inFlight(); ok && after != before {
		d.c.errorf("%s, from %s: it has %d in flight, and %d after requests came and were Refused", s.name, b.name, before, after)
	}
}

var unchangedCase = testCase{
	name: "refusal-changes-nothing",
	why: "a client that keeps asking while it is refused would otherwise keep itself, or everybody, refused: under overload," +
		" when most requests are refused, the refusals themselves would decide.",
	run: func(c *check) {
		if c.o.CountsRefusals {
			c.skipf("Options.CountsRefusals says that refusals change what is admitted")
		}
		refused := false
		eachState(func(b base, s state) {
			room, full := c.reach(b, s).fill()
			if !full {
				return
			}
			refused = true
			for _, pause := range []time.Duration{0, 20 * time.Millisecond, time.Second, time.Minute, c.o.Idle} {
				c.refuseMore(b, s, room, pause)
			}
		})
		if !refused {
			c.neverRefused()
		}
	},
}

// fill asks about a burst and returns how many requests it takes until no more are admitted.
func (d *driver) fill() (n int, full bool) {
	for i := range d.c.o.Burst {
		if d.admit(d.c.o.Request(i)) == nil {
			n = i + 1
		} else if d.c.queues {
			return n, true
		}
	}
	return n, n < d.c.o.Burst
}

// refuseMore compares two policies that are both full, one of which then refused much more than the other.
func (c *check) refuseMore(b base, s state, room int, pause time.Duration) {
	few, many := c.reach(b, s), c.reach(b, s)
	few.tryN(room + 1)
	many.tryN(room + 1)
	ended := few.elapsed()
	n := c.o.Burst
	if c.queues {
		n = 50
		ended += time.Duration(n+1) * patience
	}
	for i := range n {
		if many.admit(c.o.Request(i)) == nil {
			many.end(len(many.held)-1, spillway.Refused)
		}
	}
	for _, d := range []*driver{few, many} {
		d.sleepUntil(ended)
		d.endAll(spillway.Ignored)
		d.sleep(pause)
	}
	want, got := few.burst(), many.burst()
	if !c.same(got, want) {
		c.errorf("%s, from %s: %v after the end of what it had admitted it admits %s, but %s if it had refused %d more before",
			s.name, b.name, pause, c.count(want), c.count(got), n)
	}
}
