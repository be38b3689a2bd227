package grpcgate

import "time"

// A turn measures the time that the server of a stream has had: while its caller sends, and while its caller waits
// after sending. Other time is the caller's own, including the time that it waits before it has sent everything. The
// zero turn has not begun.
type turn struct {
	active  int           // methods of the stream that run
	sending bool          // one of them sends
	since   time.Time     // when the running method began, or the server got the last message
	had     time.Duration // before since
	stuck   time.Duration // in sending, when the context ended there
	whole   bool          // the server has everything it needs to answer
}

// begin notes that a method begins.
func (t *turn) begin(now time.Time, sending bool) {
	if t.active == 0 || sending {
		t.since = now
	}
	t.active++
	t.sending = t.sending || sending
}

// finish notes that a method ends. ended says that the context has ended.
func (t *turn) finish(now time.Time, sending, ended bool) {
	t.active--
	if !sending {
		if t.active == 0 {
			t.had += now.Sub(t.since)
		}
		return
	}
	took := now.Sub(t.since)
	t.had += took
	t.stuck = 0
	if ended {
		t.stuck = took
	}
	t.since, t.sending = now, false
}

// restart begins the turn of one message. owed says that the server can answer the message before it has the others.
func (t *turn) restart(now time.Time, owed bool) {
	t.since, t.had, t.stuck, t.whole = now, 0, 0, owed
}

// spent returns the time that the server has had.
func (t *turn) spent(now time.Time) time.Duration {
	if t.active == 0 {
		return t.had
	}
	return t.had + now.Sub(t.since)
}

// owed returns for how long the server has owed something: to read the sent messages or, once it has them all, to
// answer.
func (t *turn) owed(now time.Time) time.Duration {
	switch {
	case t.whole:
		return t.spent(now)
	case t.sending:
		return now.Sub(t.since)
	}
	return t.stuck
}
