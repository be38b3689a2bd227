// Package overload implements both ends of the header field Spillway-Overload, in which a server tells its clients what to hold
// back:
//
//	Spillway-Overload: level=-1, reduce=0.4, valid=2000, seq=81, src="k3f9"
//
// It is a dictionary of RFC 9651. Until valid milliseconds have passed, clients should send no request of a priority below
// level, and hold back the share reduce of those at level. If reduce is 0, they may send everything. src names the server
// process, and seq grows within it, so that a late answer never overrides a newer one. A [Reporter] renders the field for a
// server. [Hosts] keep what each server said, for a client.
//
// Servers that lie can do little. A client listens only to the hosts on its list, for 10 s at most. It holds back at most 0.95
// of the requests of a level, and sends a probe each second whatever they say.
package overload
