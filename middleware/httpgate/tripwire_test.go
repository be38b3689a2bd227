package httpgate_test

import (
	"context"
	"sync"

	"github.com/spillway-go/spillway"
)

// A tripwire is a breaker without mercy: it refuses everything once three requests counted against the service.
type tripwire struct {
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
	if res.Outcome == spillway.Failure || res.Outcome == spillway.Dropped {
		p.against++
		p.what = append(p.what, res)
	}
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
