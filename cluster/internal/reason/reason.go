// Package reason names why Redis did not decide, in the errors and rejections of package cluster.
package reason

// Unavailable is the reason of a spillway.Rejection when Redis does not answer and the fallback refuses: the service
// lacks something, and the caller has not used up its limit.
const Unavailable = "redis unavailable"

// The reasons of a cluster.RedisError, which lists them.
const (
	Breaker = "breaker open"
	Busy    = "no free connection"
	Timeout = "redis timeout"
	Conn    = "redis unreachable"
	Refused = "redis refused"
	Type    = "wrong type of key"
	Script  = "script failed"
)
