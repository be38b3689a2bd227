package exact

import (
	"fmt"

	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/limiter"
)

// A ruleSet is the rules in force. It is immutable.
type ruleSet struct {
	rules     []rule
	args      [][figures]int64
	calendars []*calendarEnds // nil for rules without
}

func newRuleSet(rules []rule) *ruleSet {
	s := &ruleSet{rules: append([]rule(nil), rules...)}
	for _, r := range s.rules {
		var ends *calendarEnds
		if r.kind == calendarKind {
			ends = &calendarEnds{rule: r}
		}
		s.args, s.calendars = append(s.args, r.args()), append(s.calendars, ends)
	}
	return s
}

// rules returns the rules in force.
func (l *Limit) rules() []rule {
	if s := l.set.Load(); s != nil {
		return s.rules
	}
	return nil
}

// Rules returns the rules in force, with every default filled in. Change their fields and pass them to Tune.
func (l *Limit) Rules() []limiter.Rule { return locals(l.rules()) }

// locals returns rules as package limiter writes them.
func locals(in []rule) []limiter.Rule {
	out := make([]limiter.Rule, len(in))
	for i, r := range in {
		out[i] = r.local(1)
	}
	return out
}

// Tune replaces the rules of all keys for this process, from its next call on. The number of rules, their kinds and
// their names stay the same. Used tokens stay used: a greater limit adds the difference, and a smaller one leaves at
// least none. If the sub-windows of a limiter.SlidingWindow get another length, its tokens count as taken now. The
// error names the invalid rule, and then nothing has changed.
//
// Each process applies its own rules. While they differ, the greatest limits all processes together. Only a
// SlidingWindow whose sub-windows differ may admit less than the smallest, since each change counts all tokens as
// taken now. To change a key for all processes in one call, keep its rule in Redis: [Limit.SetRule] takes precedence
// over these rules.
//
// An [Allowance] follows its Limit. Chunks that it fetched before stay valid for their time.
func (l *Limit) Tune(given ...limiter.Rule) error {
	rules, err := l.next(given)
	if err != nil {
		return err
	}
	l.mu.Lock() // so that shares and rules change together
	defer l.mu.Unlock()
	if err := l.loss.change(rules); err != nil {
		return fmt.Errorf("exact: Tune: %w", err)
	}
	l.set.Store(newRuleSet(rules))
	l.memory.forgetAll()
	return nil
}

// Check returns the rules that Tune would put in force, with every default filled in, or the error of Tune. It changes nothing.
func (l *Limit) Check(given ...limiter.Rule) ([]limiter.Rule, error) {
	rules, err := l.next(given)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.loss.check(rules); err != nil {
		return nil, fmt.Errorf("exact: Tune: %w", err)
	}
	return locals(rules), nil
}

// next returns the rules that replace those in force.
func (l *Limit) next(given []limiter.Rule) ([]rule, error) {
	if l.conn == nil {
		return nil, call.ErrZero
	}
	old := l.rules()
	if len(given) != len(old) {
		return nil, fmt.Errorf("exact: Tune: Rules must be %d, as before, got %d", len(old), len(given))
	}
	rules, err := rulesOf("Tune: ", given)
	if err != nil {
		return nil, err
	}
	for i, r := range rules {
		if r.kind != old[i].kind || r.name != old[i].name {
			return nil, fmt.Errorf("exact: Tune: Rules[%d] must be of the kind and name of %q, got %q", i, old[i].String(), r.String())
		}
	}
	return rules, nil
}
