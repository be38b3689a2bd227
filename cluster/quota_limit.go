package cluster

import (
	"fmt"

	"github.com/spillway-go/spillway/cluster/internal/lease"
	"github.com/spillway-go/spillway/limiter"
)

// A quotaLimit is the limit of a Quota until it is changed. It is immutable.
type quotaLimit struct {
	rule limiter.Bucket
	cfg  lease.Config
	args leaseArgs
}

// Rule returns the rule in force, with every default filled in. Change its fields and pass it to Tune.
func (q *Quota) Rule() limiter.Bucket {
	if set := q.limit.Load(); set != nil {
		return set.rule
	}
	return limiter.Bucket{}
}

// Tune replaces the rule of all keys for this process. Its Name stays the same. Leases of this process shrink with the
// rate at once, and grow with their next renewal, which is sent at once. Used tokens stay used. The error names the
// invalid field, and then nothing has changed.
//
// Each process applies its own limit. While they differ, all together let through at most the greatest and at least the
// smallest. The new limit holds once the last process has it, and every process has its fair share three intervals
// later. Redis does not store it: a process that starts later uses its options.
func (q *Quota) Tune(rule limiter.Bucket) error {
	if q.reject == nil {
		return errUnmade
	}
	o := q.opts
	o.Rule = rule
	if err := o.completeRule(); err != nil {
		return fmt.Errorf("cluster: Quota: Tune: Rule: %w", err)
	}
	if o.Rule.Name != q.name {
		return fmt.Errorf("cluster: Quota: Tune: Rule: Name must stay %q, got %q", q.name, o.Rule.Name)
	}
	q.setLimit(&o)
	select {
	case q.fresh.wake <- struct{}{}:
	default: // the loop is about to look anyway
	}
	return nil
}

func (q *Quota) setLimit(o *QuotaOptions) *quotaLimit {
	set := &quotaLimit{rule: o.Rule, cfg: o.config()}
	set.args = newLeaseArgs(q.id, &set.cfg)
	q.limit.Store(set)
	return set
}

// config returns the figures in force. Those of the zero Quota admit nothing.
func (q *Quota) config() *lease.Config {
	if set := q.limit.Load(); set != nil {
		return &set.cfg
	}
	return new(lease.Config)
}

// burst returns the greatest cost that can pass.
func (q *Quota) burst() int64 { return int64(q.config().Burst) }
