package policytest

import (
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
)

// A tb is the part of a *testing.T that the suite needs.
type tb interface {
	Helper()
	Error(args ...any)
	Skip(args ...any)
	run(name string, f func(tb)) // runs f as a subtest
	bubble(f func())             // runs f in a synctest bubble
}

// A testCase checks one rule.
type testCase struct {
	name string
	why  string // printed on failure: the harm to a service whose policy breaks the rule
	// bubble asks for a synctest bubble. Policies that queue get one in every case, since they may wait in every case.
	bubble bool
	run    func(*check)
}

// cases returns the rules in the order in which they are checked. Later cases rely on the first two.
func cases(queues bool) []testCase {
	list := []testCase{newPolicyCase, noBlockingCase}
	if queues {
		list = []testCase{newPolicyCase, queueCase}
	}
	return append(list,
		rejectionCase, ticketCase, givesBackCase, unchangedCase, doneAnyhowCase,
		randomCase, arrivalCase, oddCase, concurrentCase, noAllocationCase)
}

func runSuite(t tb, newPolicy func() spillway.Policy, o *Options) {
	t.Helper()
	s, err := newSuite(newPolicy, o)
	if err != nil {
		t.Error(err)
		return
	}
	for i, tc := range cases(s.queues) {
		ok := s.runCase(t, tc)
		if !ok && i < 2 {
			t.Error("policytest: the other cases are not run, since they would mislead or hang")
			return
		}
	}
}

// A suite is the state that the cases share.
type suite struct {
	newPolicy func() spillway.Policy
	o         Options
	queues    bool // the policies have a method Queues that returns true
}

func newSuite(newPolicy func() spillway.Policy, o *Options) (*suite, error) {
	s := &suite{newPolicy: newPolicy}
	if o != nil {
		s.o = *o
	}
	switch {
	case newPolicy == nil:
		return nil, fmt.Errorf("policytest: newPolicy is nil")
	case s.o.Burst < 0:
		return nil, fmt.Errorf("policytest: Options: Burst must be at least 1, got %d", s.o.Burst)
	case s.o.Idle < 0:
		return nil, fmt.Errorf("policytest: Options: Idle must not be negative, got %v", s.o.Idle)
	case !(s.o.Slack >= 0 && s.o.Slack <= 1):
		return nil, fmt.Errorf("policytest: Options: Slack must be in 0..1, got %v", s.o.Slack)
	}
	if s.o.Burst == 0 {
		s.o.Burst = 1024
	}
	if s.o.Idle == 0 {
		s.o.Idle = 48 * time.Hour
	}
	if s.o.Request == nil {
		s.o.Request = defaultRequest
	}
	p := newPolicy()
	if q, ok := p.(interface{ Queues() bool }); ok {
		s.queues = q.Queues()
	}
	closePolicy(p)
	return s, nil
}

var defaultKeys = [...]string{"", "a", "b", "c"}

func defaultRequest(i int) spillway.Request {
	return spillway.Request{Key: defaultKeys[i%len(defaultKeys)]}
}

// closePolicy closes p if it has something to close.
func closePolicy(p spillway.Policy) {
	switch p := p.(type) {
	case interface{ Close() error }:
		_ = p.Close()
	case interface{ Close() }:
		p.Close()
	}
}

// runCase runs tc as a subtest and reports whether it passed.
func (s *suite) runCase(t tb, tc testCase) (ok bool) {
	t.Helper()
	t.run(tc.name, func(t tb) {
		t.Helper()
		c := &check{suite: s}
		c.exec(t, tc)
		ok = len(c.problems) == 0
		if !ok {
			t.Error(strings.Join(c.problems, "\n") + "\nwhy it matters: " + tc.why)
		} else if c.skipped != "" {
			t.Skip(c.skipped)
		}
	})
	return ok
}

// maxProblems bounds how many problems one case prints.
const maxProblems = 5

// A check is one case under way.
type check struct {
	*suite
	skipped  string
	asking   string    // the current test step, for the report of a panic
	opened   []*driver // to be closed
	mu       sync.Mutex
	problems []string // guarded by mu
}

// exec runs tc to its end, in a bubble if necessary, and turns panics into problems.
func (c *check) exec(t tb, tc testCase) {
	body := func() {
		defer c.closeAll()
		c.protect(func() { tc.run(c) })
	}
	if !tc.bubble && !c.queues {
		body()
		return
	}
	defer func() {
		// Goroutines left in the bubble at its end can never end. They are a problem, or follow from one.
		if v := recover(); v != nil && len(c.problems) == 0 {
			c.errorf("goroutines of the policy outlive it: %v", v)
		}
	}()
	t.bubble(body)
}

// closeAll closes the policies of the case. After a problem it does not, because a policy that hangs may also hang in
// Close.
func (c *check) closeAll() {
	if len(c.problems) > 0 {
		return
	}
	for _, d := range c.opened {
		closePolicy(d.p)
	}
}

// stop ends a case from within.
type stop struct{}

// protect calls f and turns a panic into a problem. It may be called from any goroutine.
func (c *check) protect(f func()) {
	defer func() {
		switch v := recover(); v.(type) {
		case nil, stop:
		default:
			c.errorf("%sthe policy panicked: %v\n%s", c.asking, v, debug.Stack())
		}
	}()
	f()
}

func (c *check) errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

func (c *check) fatalf(format string, args ...any) {
	c.errorf(format, args...)
	panic(stop{})
}

// skipf ends the case as not applicable.
func (c *check) skipf(format string, args ...any) {
	c.skipped = fmt.Sprintf(format, args...)
	panic(stop{})
}
