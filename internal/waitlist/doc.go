// Package waitlist is the order in which requests wait for a place, as a pure state machine: the caller passes the time
// in ns, holds a lock, and blocks.
//
//	list := waitlist.List{Order: waitlist.Fair, MaxQueue: 100, MaxWait: int64(time.Second)}
//	guest, wait, verdict := list.Enqueue(now, waitlist.Guest{N: 1, Key: key}, left)
//	...
//	for g := list.Next(now); g != nil && take(g); g = list.Next(now) { // when a place is free
//		list.Settle(g, waitlist.Runs)
//	}
//
// The highest priority goes first. So that lower ones do not starve, one place in a thousand goes to the lowest. Requests
// of one priority go by [Order].
//
// # Fair queueing
//
// Fair is start-time fair queueing (Goyal, Vin and Cheng 1996) over a fixed number of lines, with shuffle sharding as
// in the API Priority and Fairness of Kubernetes. A hash deals each key a few of the lines, and the key joins the
// shortest. Unlike there, all waiting requests of a key are in one line. So they stay in order, and a key with many
// requests has one share. Each line has a virtual time: what its requests have cost so far. The line that is furthest
// behind goes first, and an empty line does not save up. So a request waits for at most one round of the lines for each
// request before it in its own line, and lines use the turns that others leave.
//
// # Expected waits
//
// The list measures how many places become free per second while requests wait. A request whose turn would come too
// late by that pace is refused at once. A second after the last measurement, the pace counts as unknown, so that an old
// one does not refuse requests for ever.
package waitlist
