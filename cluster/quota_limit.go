package cluster

import (
	"cmp"

	"github.com/spillway-go/spillway/cluster/internal/lease"
	"github.com/spillway-go/spillway/limiter"
)

// A quotaLimit is what a Quota goes by until its limit is changed. It is immutable.
type quotaLimit struct {
	cfg  lease.Config
	args leaseArgs
}

// SetLimit changes the rate and the burst of all keys, as far as this process decides it, with the defaults of [QuotaOptions].
// Leases of this process shrink with the rate at once, and grow with their next renewal, which is asked for at once. Tokens
// that were taken stay taken. The error names what cannot be right, and then nothing has changed.
//
// Each process applies its own limit. While they differ, all together let through no more than the greatest allows, and no less
// than the smallest. The new one holds when the last process has been told, and everybody has its share of it three intervals
// later. It is not kept in Redis: a process that is started later has what its options say.
func (q *Quota) SetLimit(rate limiter.Rate, burst int) error {
	if q.reject == nil {
		return errUnmade
	}
	o := q.opts
	o.Rate, o.Burst = rate, cmp.Or(burst, rate.Tokens)
	if err := o.validate(); err != nil {
		return err
	}
	q.setLimit(&o)
	select {
	case q.fresh.wake <- struct{}{}:
	default: // the loop is about to look anyway
	}
	return nil
}

func (q *Quota) setLimit(o *QuotaOptions) *quotaLimit {
	set := &quotaLimit{cfg: o.config()}
	set.args = newLeaseArgs(q.id, &set.cfg)
	q.limit.Store(set)
	return set
}

// config returns what is in force. That of the zero Quota lets nothing pass.
func (q *Quota) config() *lease.Config {
	if set := q.limit.Load(); set != nil {
		return &set.cfg
	}
	return new(lease.Config)
}

// burst returns the greatest cost that can pass.
func (q *Quota) burst() int64 { return int64(q.config().Burst) }
