package cluster

// A RedisError says that Redis gave no valid answer. The call may have had its effect, at most once, if Reason is
// "redis timeout" or "redis unreachable".
//
// If Redis does not answer and the fallback refuses, the *spillway.Rejection has the reason "redis unavailable" instead:
// the service lacks something, and the caller has not used up its limit.
type RedisError struct {
	// Reason is fit for a metric label:
	//   - "breaker open": Redis has not answered recently, so it was not asked
	//   - "no free connection": all connections of the client were in use; the script did not run
	//   - "redis timeout": no answer in time; the script may have run
	//   - "redis unreachable": no connection, or it broke; the script may have run
	//   - "redis refused": Redis is loading, a replica or out of memory, for example
	//   - "wrong type of key": the key holds a value of another type, of another program
	//   - "script failed": the script failed, or returned an invalid reply
	Reason string
	Err    error // of the client, or of the breaker
}

// Error returns a text such as "cluster: redis timeout: context deadline exceeded".
func (e *RedisError) Error() string {
	if e.Err == nil {
		return "cluster: " + e.Reason
	}
	return "cluster: " + e.Reason + ": " + e.Err.Error()
}

// Unwrap returns the error of the client.
func (e *RedisError) Unwrap() error { return e.Err }
