package lease

import (
	"fmt"

	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/lease/internal/machine"
	"github.com/spillway-go/spillway/limiter"
)

// A ruleSet is the rule of a Limit until it is changed. It is immutable.
type ruleSet struct {
	rule limiter.Bucket
	cfg  machine.Config
	args scriptArgs
}

// Rule returns the rule in force, with every default filled in. Change its fields and pass it to Tune.
func (q *Limit) Rule() limiter.Bucket {
	if set := q.limit.Load(); set != nil {
		return set.rule
	}
	return limiter.Bucket{}
}

// Tune replaces the rule of all keys for this process. Its Name stays the same. Leases of this process shrink with the
// rate at once, and grow with their next renewal, which is sent at once. Used tokens stay used. The error names the
// invalid field, and then nothing has changed.
//
// Each process applies its own limit. While they differ, all together let through at most the greatest limit and at least the
// smallest. The new limit holds once the last process has it, and every process has its fair share three intervals later. Redis
// does not store it: a process that starts later uses its options.
func (q *Limit) Tune(rule limiter.Bucket) error {
	o, err := q.next(rule)
	if err != nil {
		return err
	}
	q.setLimit(&o)
	select {
	case q.fresh.wake <- struct{}{}:
	default: // the loop is about to look anyway
	}
	return nil
}

// Check returns the rule that Tune would put in force, with every default filled in, or the error of Tune. It changes nothing.
func (q *Limit) Check(rule limiter.Bucket) (limiter.Bucket, error) {
	o, err := q.next(rule)
	return o.Rule, err
}

// next returns the options with another rule.
func (q *Limit) next(rule limiter.Bucket) (Options, error) {
	if q.reject == nil {
		return Options{}, call.ErrZero
	}
	o := q.opts
	o.Rule = rule
	if err := o.completeRule("lease: Tune: Rule"); err != nil {
		return o, err
	}
	if o.Rule.Name != q.name {
		return o, fmt.Errorf("lease: Tune: Rule: Name must stay %q, got %q", q.name, o.Rule.Name)
	}
	return o, nil
}

func (q *Limit) setLimit(o *Options) *ruleSet {
	set := &ruleSet{rule: o.Rule, cfg: o.config()}
	set.args = newScriptArgs(q.id, &set.cfg)
	q.limit.Store(set)
	return set
}

// config returns the figures in force. Those of the zero Limit admit nothing.
func (q *Limit) config() *machine.Config {
	if set := q.limit.Load(); set != nil {
		return &set.cfg
	}
	return new(machine.Config)
}

// burst returns the greatest cost that can pass.
func (q *Limit) burst() int64 { return int64(q.config().Burst) }
