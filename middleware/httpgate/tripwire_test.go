package httpgate_test

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
)

// A tripwire is a breaker without mercy: it refuses everything for good once three requests counted against the service, or
// one was slow.
type tripwire struct {
	slow time.Duration

	mu       sync.Mutex
	against  int
	inFlight int
	what     []spillway.Result
}

var errTripped = &spillway.Rejection{Policy: "tripwire", Reason: "tripped"}

func (p *tripwire) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.against >= 3 {
		return 0, errTripped
	}
	p.inFlight++
	return 0, nil
}

func (p *tripwire) Done(_ spillway.Request, _ spillway.Ticket, res spillway.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	switch {
	case res.Outcome == spillway.Failure, res.Outcome == spillway.Dropped:
		p.against++
	case res.Outcome == spillway.Success && res.Latency > p.slow:
		p.against = 3
	default:
		return
	}
	p.what = append(p.what, res)
}

func (p *tripwire) seen() (inFlight int, against []spillway.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inFlight, p.what
}

// forget starts anew, for the next attack.
func (p *tripwire) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.against, p.what = 0, nil
}
