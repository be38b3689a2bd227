// Package level decides which requests a Shedder refuses first. A law says how many requests may be in flight; this
// package spreads that number over the priorities, and over the routes and the keys of one priority.
//
// # Priorities
//
// A decaying [Histogram] counts the priorities of all requests that arrive. The share of requests that has to be
// refused is a quantile of it: the mark. Requests above the mark are admitted even at the limit, and requests at the
// mark up to the limit. Requests below it are admitted only if the others leave much room (trunk reservation). So a
// lower priority uses exactly the capacity that the higher ones leave, and a priority that is alone has all of it.
//
// # Keys
//
// Inside the priority at the mark, keys share by max-min fairness: there is a level, in requests per window, and a key
// is admitted up to it. Keys below the level are not affected, and fit like a higher priority. A sketch estimates how
// many requests each key sends, in memory that does not grow with the number of keys. It is count-min with conservative
// update (Cormode and Muthukrishnan 2005, Estan and Varghese 2002). The sketch also remembers the last requests. They
// are a sample of the keys by their rates, so the level follows from it without a list of keys. A request passes if a
// random draw, times the rate of its key, is below the level.
//
// The rates of light keys cannot be told apart, so each counts as their mean. If even that has to be cut, a hash of the
// key is the draw. Then the same few keys are refused in all services, rather than all keys now and then. The hash
// changes with the rotation.
//
// Rates are in requests, and the limit is learnt for the present mix of requests. So keys do not decide if the keys that
// would gain and the keys that would lose have requests of different cost. The measure is their time in the calm service,
// and a ratio of 2 is too much.
//
// # Routes
//
// If routes share too, everything above them is measured in busy time instead of requests: the shares of the priorities, and
// what passes. The busy time of a request is the time that requests of its route take in the calm service. The class at the
// mark is divided by max-min fairness twice, first among its routes by busy time, then, inside a route, among its keys by
// requests. Inside a route, requests cost about the same. A route that is served in full ranks like a key below the level.
//
// Then the mix of the admitted requests is another one than in the calm service: more of them are cheap. [State.Mix] tells
// the law by how much, because a limit that was learnt for the calm mix would let in too many.
//
// Without that, there is one route with all requests, and requests are counted.
//
// # Invented keys
//
// A client that invents a key per request looks like many light keys. Light keys are therefore served in full only up to
// nine tenths of what is admitted, or up to their share of the requests if that is more. Keys that are heavy enough to be
// seen keep the rest, and are never cut more than light ones by this. The sketch hashes with a seed of its own, so a
// stranger cannot choose keys that collide with a given one.
package level
