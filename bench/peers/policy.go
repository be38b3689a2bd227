package peers

import (
	"context"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// Policy returns p as a policy for virtual time. Peers read the clock themselves, so advance gets the time before each
// call; it must not return before the clock that the peer reads shows that time. The policy reads the CPU from cpu. One
// goroutine may call it.
func (p Peer) Policy(cpu *stats.Sensor[stats.CPUSample], advance func(now time.Time)) (spillway.Policy, error) {
	v := &virtual{advance: advance, inside: map[spillway.Ticket]func(){}}
	a, err := p.New(Facts{CPU: func() (float64, float64) { return readings(cpu, v.now) }})
	v.admit = a.Admit
	return v, err
}

// A virtual is a peer whose time is given.
type virtual struct {
	admit   func() (func(), bool)
	advance func(time.Time)
	now     time.Time
	inside  map[spillway.Ticket]func()
	last    spillway.Ticket
}

var refused = &spillway.Rejection{Policy: "peer", Reason: "refused"}

// Admit implements spillway.Policy.
func (v *virtual) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	v.now = r.Arrived
	v.advance(v.now)
	done, ok := v.admit()
	if !ok {
		return 0, refused
	}
	v.last++
	v.inside[v.last] = done
	return v.last, nil
}

// Done implements spillway.Policy.
func (v *virtual) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	v.now = r.Arrived.Add(res.Latency)
	v.advance(v.now)
	v.inside[t]()
	delete(v.inside, t)
}
