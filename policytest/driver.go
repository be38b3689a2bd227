package policytest

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/spillway-go/spillway"
)

// patience is how long a request waits in a policy that queues before the suite counts it as refused.
const patience = time.Millisecond

// A base is where virtual time starts.
type base struct {
	name string
	at   time.Time
}

// bases returns the starts of virtual time: one as in production, and the edge case from which simulations start.
func bases() []base {
	return []base{
		{"2026", time.Date(2026, time.March, 29, 0, 59, 58, 765432101, time.UTC)},
		{"the Unix epoch", time.Unix(0, 0)},
	}
}

// A driver asks one policy from one goroutine, and keeps track of the time and the requests.
type driver struct {
	c      *check
	p      spillway.Policy
	base   time.Time
	offset time.Duration // passed since base; unused for policies that queue
	start  time.Time     // when the driver was made, on the clock of the bubble
	held   []held        // admitted and not ended
	cost   int64         // of held
	asked  int
}

// A held is a request that was admitted and not ended.
type held struct {
	r spillway.Request
	t spillway.Ticket
}

// drive returns a driver of a new policy.
func (c *check) drive(b base) *driver {
	d := &driver{c: c, p: c.newPolicy(), base: b.at}
	if c.queues {
		d.start = time.Now()
	}
	c.opened = append(c.opened, d)
	return d
}

// elapsed returns the time since the driver was made. For a policy that queues it is the time of the bubble, which passes
// while a request waits.
func (d *driver) elapsed() time.Duration {
	if d.c.queues {
		return time.Since(d.start)
	}
	return d.offset
}

func (d *driver) now() time.Time { return d.base.Add(d.elapsed()) }

func (d *driver) sleep(pause time.Duration) {
	if pause <= 0 {
		return
	}
	if d.c.queues {
		time.Sleep(pause) // in a bubble
		return
	}
	d.offset += pause
}

func (d *driver) sleepUntil(elapsed time.Duration) { d.sleep(elapsed - d.elapsed()) }

// ask calls Admit with r as it is.
func (d *driver) ask(r spillway.Request) (spillway.Ticket, error) {
	if !d.c.queues {
		return d.p.Admit(context.Background(), r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return d.p.Admit(ctx, r)
}

// enter is ask through a Gate.
func (d *driver) enter(gate *spillway.Gate, r spillway.Request) (spillway.Permit, error) {
	if !d.c.queues {
		return gate.Enter(context.Background(), r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return gate.Enter(ctx, r)
}

// admit asks about r, arriving now, and holds it if it was admitted.
func (d *driver) admit(r spillway.Request) error {
	r.Arrived = d.now()
	return d.admitAt(r)
}

// admitAt admits a request that has its arrival set.
func (d *driver) admitAt(r spillway.Request) error {
	t, err := d.ask(r)
	if err == nil {
		d.hold(held{r, t})
	}
	return err
}

func (d *driver) hold(h held) {
	d.held = append(d.held, h)
	d.cost += int64(max(h.r.Cost, 1))
}

// next returns the next of the requests that Options.Request makes.
func (d *driver) next() spillway.Request {
	d.asked++
	return d.c.o.Request(d.asked - 1)
}

// end ends the i-th request held with a latency up to now.
func (d *driver) end(i int, o spillway.Outcome) {
	d.endAfter(i, o, max(d.now().Sub(d.held[i].r.Arrived), 0))
}

func (d *driver) endAfter(i int, o spillway.Outcome, latency time.Duration) {
	h, last := d.held[i], len(d.held)-1
	d.held[i] = d.held[last]
	d.held = d.held[:last]
	d.cost -= int64(max(h.r.Cost, 1))
	if o == spillway.Refused {
		latency = 0 // as a Gate has it
	}
	d.p.Done(h.r, h.t, spillway.Result{Outcome: o, Latency: latency})
}

// endAll ends all requests held, the last of them first.
func (d *driver) endAll(o spillway.Outcome) {
	for len(d.held) > 0 {
		d.end(len(d.held)-1, o)
	}
}

// tryN asks about n requests at one instant and returns how many were admitted.
func (d *driver) tryN(n int) (admitted int) {
	for i := range n {
		r := d.c.o.Request(i)
		if d.admit(r) == nil {
			admitted++
		} else if d.c.queues {
			return admitted // time has passed for a request that waited, so the burst cannot continue at the same instant
		}
	}
	return admitted
}

// burst asks about Options.Burst requests at one instant and returns how many were admitted.
func (d *driver) burst() int { return d.tryN(d.c.o.Burst) }

// serve runs n requests one after the other, each for latency.
func (d *driver) serve(n int, latency time.Duration, outcomes ...spillway.Outcome) (admitted int) {
	for i := range n {
		err := d.admit(d.next())
		d.sleep(latency)
		if err == nil {
			admitted++
			d.end(len(d.held)-1, outcomes[i%len(outcomes)])
		}
	}
	return admitted
}

// inFlight returns the number of requests that the policy counts as in flight, if it reports one.
func (d *driver) inFlight() (n int64, ok bool) {
	if f := d.c.o.InFlight; f != nil {
		return f(d.p), true
	}
	switch p := d.p.(type) {
	case interface{ InFlight() int64 }:
		return p.InFlight(), true
	case interface{ InFlight() int }:
		return int64(p.InFlight()), true
	}
	return statsInFlight(d.p)
}

// statsInFlight reads p.Stats().InFlight.
func statsInFlight(p spillway.Policy) (n int64, ok bool) {
	m := reflect.ValueOf(p).MethodByName("Stats")
	if !m.IsValid() || m.Type().NumIn() != 0 || m.Type().NumOut() != 1 {
		return 0, false
	}
	v := reflect.Indirect(m.Call(nil)[0])
	if v.Kind() != reflect.Struct {
		return 0, false
	}
	switch f := v.FieldByName("InFlight"); {
	case !f.IsValid():
		return 0, false
	case f.CanInt():
		return f.Int(), true
	case f.CanUint():
		return int64(f.Uint()), true
	}
	return 0, false
}

// same reports whether two numbers of admitted requests are equal, or as near as Options.Slack allows.
func (c *check) same(a, b int) bool {
	return float64(max(a-b, b-a)) <= c.o.Slack*float64(c.o.Burst)
}

// nothingLeft checks that the driver's policy, after a history in which every request was ended, has nothing in flight.
func (d *driver) nothingLeft(b base, history string) bool {
	if n, ok := d.inFlight(); ok && n != 0 {
		d.c.errorf("%s, from %s: every request was ended, and the policy has %d in flight", history, b.name, n)
		return false
	}
	d.sleep(d.c.o.Idle)
	since := d.elapsed()
	good := d.recover()
	if d.c.o.Learns {
		if good == 0 {
			d.c.errorf("%s, from %s: every request was ended, and a long pause later the policy admits none of %d",
				history, b.name, recovery)
		}
		return good > 0
	}
	fresh := d.c.drive(b)
	fresh.sleepUntil(since)
	fresh.recover()
	got, want := d.burst(), fresh.burst()
	if !d.c.same(got, want) {
		d.c.errorf("%s, from %s: every request was ended, and a long pause and %d good requests later the policy admits %s at one"+
			" instant, while a new one admits %s", history, b.name, recovery, d.c.count(got), d.c.count(want))
		return false
	}
	return true
}

// recovery is how many good requests, a second apart, make a policy forget past failures.
const recovery = 200

// recover runs good requests until the policy has forgotten past failures.
func (d *driver) recover() (admitted int) {
	admitted = d.serve(recovery, time.Second, spillway.Success)
	d.sleep(d.c.o.Idle)
	return admitted
}

// count writes a number of admitted requests.
func (c *check) count(n int) string {
	if n == c.o.Burst {
		return fmt.Sprintf("all of %d", n)
	}
	return fmt.Sprint(n)
}
