// Package tally counts refusals by policy and reason.
package tally

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/stats"
)

// maxReasons is the number of reasons that a Tally counts separately. Further reasons are counted as "other".
const maxReasons = 64

// A Tally counts refusals by policy and reason. Reasons are few and constant, so a scan of an immutable slice finds the
// counter without a lock; only the first refusal of a kind takes one.
type Tally struct {
	mu      sync.Mutex
	entries atomic.Pointer[[]*counted]
}

// An Entry is the count of one policy and reason.
type Entry struct {
	Index          int // place of the policy
	Policy, Reason string
	Count          int64
}

type counted struct {
	index          int
	policy, reason string
	count          stats.Counter
}

// Add counts one refusal.
func (t *Tally) Add(index int, policy, reason string) {
	if e := t.find(index, policy, reason); e != nil {
		e.count.Add(1)
		return
	}
	t.insert(index, policy, reason).count.Add(1)
}

func (t *Tally) find(index int, policy, reason string) *counted {
	if entries := t.entries.Load(); entries != nil {
		for _, e := range *entries {
			if e.index == index && e.reason == reason && e.policy == policy {
				return e
			}
		}
	}
	return nil
}

func (t *Tally) insert(index int, policy, reason string) *counted {
	t.mu.Lock()
	defer t.mu.Unlock()
	var entries []*counted
	if p := t.entries.Load(); p != nil {
		entries = *p
	}
	if len(entries) >= maxReasons {
		policy, reason = "other", "other"
	}
	if e := t.find(index, policy, reason); e != nil {
		return e
	}
	e := &counted{index: index, policy: policy, reason: reason}
	entries = append(slices.Clip(entries), e)
	t.entries.Store(&entries)
	return e
}

// Each calls f for each entry, in the order of their first occurrence.
func (t *Tally) Each(f func(Entry)) {
	p := t.entries.Load()
	if p == nil {
		return
	}
	for _, e := range *p {
		f(Entry{Index: e.index, Policy: e.policy, Reason: e.reason, Count: e.count.Value()})
	}
}
