package limiter

import "time"

// places is the rule of a Concurrency for a Keyed, where the lock of a shard guards what is in flight.
type places struct{ limit int64 }

func (p *places) take(inFlight *int64, _ moment, n, _ int64) (wait int64, stamp uint64, ok bool) {
	if n > p.limit-*inFlight {
		return int64(never), 0, false
	}
	*inFlight += n
	return 0, 0, true
}

func (p *places) giveBack(inFlight *int64, _ moment, l loan) {
	*inFlight = max(*inFlight-l.n, 0)
}

func (p *places) peek(inFlight *int64, _ moment) State {
	return State{Limit: p.limit, Remaining: max(p.limit-*inFlight, 0)}
}

func (p *places) idle(inFlight *int64, _ moment) bool { return *inFlight == 0 }

func (p *places) since(int64) core[int64] { return p }

// heir returns none: places taken from s are given back to s.
func (p *places) heir(*int64, moment) int64 { return 0 }

func (p *places) max() int64 { return p.limit }

func (p *places) window() time.Duration { return 0 }

func (p *places) follows(core[int64]) bool { return true }

func (p *places) adopt(*int64, moment, core[int64]) {}

func (c *Concurrency) keyed(maxKeys int) keyedLimits {
	if c.reject == nil {
		return nil
	}
	k := &keyed[int64]{table: newTable[int64](maxKeys), reject: c.reject, lent: true}
	p := c.coreOf()
	k.core.Store(&p)
	return k
}

func (c *Concurrency) coreOf() core[int64] {
	if c.reject == nil {
		return nil
	}
	return &places{limit: c.limit.Load()}
}
