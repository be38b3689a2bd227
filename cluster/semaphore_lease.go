package cluster

import "time"

// A semStep is what a holder has to do about its lease.
type semStep int

const (
	semKeep  semStep = iota // nothing yet
	semRenew                // ask for more time
	semOver                 // stop: the lease may end at any moment
)

// A semLease is what a holder knows of its lease. It is a pure state machine: the time is an argument, which must carry a
// monotonic reading. Redis counts the TTL from when it runs a call, which is after the call was sent, so a holder that
// counts from the sending is never later than Redis. Not safe for concurrent use.
type semLease struct {
	ttl, guard time.Duration
	from       time.Time // when the last call was sent to which Redis said yes
	retry      time.Time // do not ask before
	over       bool
}

// ends returns when the holder has to stop.
func (l *semLease) ends() time.Time { return l.from.Add(l.ttl - l.guard) }

// step says what there is to do now. What is over stays over.
func (l *semLease) step(now time.Time) semStep {
	switch {
	case l.over || !now.Before(l.ends()):
		l.over = true
		return semOver
	case now.Before(l.from.Add(l.ttl / 3)), now.Before(l.retry):
		return semKeep
	}
	return semRenew
}

// renewed takes note that Redis said yes to a call sent at the given time. It reports whether the lease goes on: a yes that
// comes after the holder had to stop is of no use to it.
func (l *semLease) renewed(sent, now time.Time) bool {
	if l.step(now) == semOver {
		return false
	}
	if sent.After(l.from) {
		l.from = sent
	}
	l.retry = time.Time{}
	return true
}

// refused takes note that Redis no longer knows the lease.
func (l *semLease) refused() { l.over = true }

// unanswered takes note that Redis did not answer.
func (l *semLease) unanswered(now time.Time) { l.retry = now.Add(l.ttl / 20) }
