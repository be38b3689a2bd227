package call

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/reason"
)

// reasonOf classes an error of the client.
func reasonOf(err error) string {
	var fromServer redis.Error
	var network net.Error
	switch {
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, errQueued):
		return reason.Busy
	case errors.As(err, &fromServer):
		text := err.Error()
		switch {
		case strings.Contains(text, "WRONGTYPE"): // Redis 6 adds a prefix
			return reason.Type
		case isFull(err):
			return reason.Refused
		case strings.HasPrefix(text, "ERR") && !strings.Contains(text, "max number of clients"):
			return reason.Script
		}
		return reason.Refused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return reason.Timeout
	}
	return reason.Conn
}

// Unanswered reports whether err says that Redis gave no valid answer.
func Unanswered(err error) bool {
	if _, ok := err.(*cluster.RedisError); ok { //nolint:errorlint // the common case: errors.As would allocate
		return true
	}
	var lost *cluster.RedisError
	return errors.As(err, &lost)
}

// isFull reports whether Redis has no memory for new keys. Redis answers at once then, and continues with existing
// keys.
func isFull(err error) bool { return strings.Contains(err.Error(), "OOM command not allowed") }
