package cluster

import "fmt"

// A ruleSet is the rules in force. It is immutable.
type ruleSet struct {
	rules     []Rule
	args      [][figures]int64
	calendars []*calendarEnds // nil for rules without
}

func newRuleSet(rules []Rule) *ruleSet {
	s := &ruleSet{rules: append([]Rule(nil), rules...)}
	for _, r := range s.rules {
		var ends *calendarEnds
		if r.kind == calendarKind {
			ends = &calendarEnds{rule: r}
		}
		s.args, s.calendars = append(s.args, r.args()), append(s.calendars, ends)
	}
	return s
}

func validateRules(what string, rules []Rule) error {
	for i, r := range rules {
		if err := r.validate(); err != nil {
			return fmt.Errorf("cluster: %s: Rules[%d]: %w", what, i, err)
		}
	}
	return nil
}

// rules returns the rules in force.
func (l *Limit) rules() []Rule {
	if s := l.set.Load(); s != nil {
		return s.rules
	}
	return nil
}

// SetRules changes the rules of all keys for this process, from its next call on. The number of rules, their kinds and
// their names stay the same. Used tokens stay used: a greater limit adds the difference, and a smaller one leaves at
// least none. If the sub-windows of a [SlidingWindow] get another length, its tokens count as taken now. The error
// names the invalid rule, and then nothing has changed.
//
// Each process applies its own rules. While they differ, the greatest limits all processes together. Only a
// [SlidingWindow] whose sub-windows differ may admit less than the smallest, since each change counts all tokens as
// taken now. To change a key for all processes in one call, keep its rule in Redis: [Limit.SetRule] takes precedence
// over these rules.
//
// An [Allowance] follows its Limit. Chunks that it fetched before stay valid for their time.
func (l *Limit) SetRules(rules ...Rule) error {
	if l.conn == nil {
		return errUnmade
	}
	old := l.rules()
	if len(rules) != len(old) {
		return fmt.Errorf("cluster: Limit: SetRules: Rules must be %d, as before, got %d", len(old), len(rules))
	}
	for i, r := range rules {
		if r.kind != old[i].kind || r.name != old[i].name {
			return fmt.Errorf("cluster: Limit: SetRules: Rules[%d] must be of the kind and name of %q, got %q", i, old[i].String(), r.String())
		}
	}
	if err := validateRules("Limit: SetRules", rules); err != nil {
		return err
	}
	l.mu.Lock() // so that shares and rules change together
	defer l.mu.Unlock()
	if err := l.loss.change(rules); err != nil {
		return fmt.Errorf("cluster: Limit: SetRules: %w", err)
	}
	l.set.Store(newRuleSet(rules))
	l.memory.forgetAll()
	return nil
}
