// Package level decides which requests a Shedder refuses first. A law says how many requests may be in flight; this
// package spreads that number over the priorities, and over the keys of one priority.
//
// A request has a level: its priority and, inside it, a position that is a hash of its key. A decaying [Histogram]
// counts the levels of all requests that arrive. The share of requests that has to be refused is a quantile of it: the
// mark. Requests above the mark are admitted even at the limit, those at the mark up to the limit, and those below it
// only if the others leave much room (trunk reservation). So a lower priority uses exactly the capacity that the higher
// ones leave, and a priority that is alone has all of it.
package level
