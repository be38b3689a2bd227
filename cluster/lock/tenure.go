package lock

import "time"

// A step is the next step of a holder for its lease.
type step int

const (
	stepKeep  step = iota // nothing yet
	stepRenew             // ask for more time
	stepOver              // stop: the lease may end at any moment
)

// A tenure is what a holder knows about its lease. It is a pure state machine: the time is an argument, which must
// carry a monotonic reading. Redis counts the TTL from when it runs a call, which is after the call was sent. A holder
// counts from the sending, so it is never later than Redis. Not safe for concurrent use.
type tenure struct {
	ttl, guard time.Duration
	from       time.Time // when the last call that Redis granted was sent
	retry      time.Time // do not ask before
	over       bool
}

// ends returns when the holder has to stop.
func (l *tenure) ends() time.Time { return l.from.Add(l.ttl - l.guard) }

// step returns the next step at now. A lease that is over stays over.
func (l *tenure) step(now time.Time) step {
	switch {
	case l.over || !now.Before(l.ends()):
		l.over = true
		return stepOver
	case !l.due(now):
		return stepKeep
	}
	return stepRenew
}

// due reports whether it is time to ask for more.
func (l *tenure) due(now time.Time) bool {
	return !now.Before(l.from.Add(l.ttl/3)) && !now.Before(l.retry)
}

// renewed records that Redis granted a call sent at the given time. It reports whether the lease continues: a grant
// that arrives after the holder had to stop is useless.
func (l *tenure) renewed(sent, now time.Time) bool {
	if l.step(now) == stepOver {
		return false
	}
	if sent.After(l.from) {
		l.from = sent
	}
	l.retry = time.Time{}
	return true
}

// regained records that Redis granted a call sent at the given time, for a lease that may have been over.
func (l *tenure) regained(sent time.Time) {
	l.from, l.retry, l.over = sent, time.Time{}, false
}

// refused records that Redis no longer knows the lease.
func (l *tenure) refused() { l.over = true }

// unanswered records that Redis did not answer.
func (l *tenure) unanswered(now time.Time) { l.retry = now.Add(l.ttl / 20) }
