package cluster

import "errors"

// ReasonUnavailable is the reason of a spillway.Rejection when Redis does not answer and the fallback refuses: the
// service lacks something, and the caller has not used up its limit.
const ReasonUnavailable = "redis unavailable"

// The reasons of a [RedisError], fit for metric labels.
const (
	ReasonBreaker = "breaker open"       // Redis did not answer lately, so it was not asked
	ReasonBusy    = "no free connection" // all connections of the client were in use; the script did not run
	ReasonTimeout = "redis timeout"      // no answer in time; the script may have run
	ReasonConn    = "redis unreachable"  // no connection, or it broke; the script may have run
	ReasonRefused = "redis refused"      // Redis is loading, a replica or out of memory, for example
	ReasonType    = "wrong type of key"  // the key holds a value of another type, of another program
	ReasonScript  = "script failed"      // the script failed, or returned an invalid reply
)

// ErrRedis matches every [RedisError]: errors.Is(err, ErrRedis).
var ErrRedis = errors.New("cluster: no answer by Redis")

// A RedisError says that Redis gave no valid answer. The call may have had its effect, at most once, if Reason is
// [ReasonTimeout] or [ReasonConn].
type RedisError struct {
	Reason string // one of the constants above
	Err    error  // of the client, or of the breaker
}

// Error returns a text such as "cluster: redis timeout: context deadline exceeded".
func (e *RedisError) Error() string {
	if e.Err == nil {
		return "cluster: " + e.Reason
	}
	return "cluster: " + e.Reason + ": " + e.Err.Error()
}

// Unwrap returns [ErrRedis] and the error of the client.
func (e *RedisError) Unwrap() []error { return []error{ErrRedis, e.Err} }
