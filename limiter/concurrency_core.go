package limiter

import "time"

// lending is the rule of a Concurrency for a Keyed, where the lock of a shard guards what is in flight.
type lending struct{ limit int64 }

func (p *lending) take(inFlight *int64, _ moment, n, _ int64) (wait int64, stamp uint64, ok bool) {
	if n > p.limit-*inFlight {
		return int64(never), 0, false
	}
	*inFlight += n
	return 0, 0, true
}

func (p *lending) giveBack(inFlight *int64, _ moment, l loan) {
	*inFlight = max(*inFlight-l.n, 0)
}

func (p *lending) peek(inFlight *int64, _ moment) State {
	return State{Limit: p.limit, Remaining: max(p.limit-*inFlight, 0)}
}

func (p *lending) idle(inFlight *int64, _ moment) bool { return *inFlight == 0 }

func (p *lending) since(int64, *int64) core[int64] { return p }

// heir returns none: places taken from s are given back to s.
func (p *lending) heir(*int64, moment) int64 { return 0 }

func (p *lending) max() int64 { return p.limit }

func (p *lending) window() time.Duration { return 0 }

func (p *lending) follows(core[int64]) error { return nil }

func (p *lending) adopt(*int64, moment, core[int64]) {}
