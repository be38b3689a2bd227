package grpcgate

import (
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/overload"
)

// A listener hears what the server says at the end of a call. The zero listener hears nothing.
type listener struct {
	host     *overload.Host
	priority spillway.Priority
}

// listener returns the listener of a call of a priority, or the error of a call that should not be made.
func (c *Client) listener(conn *grpc.ClientConn, p spillway.Priority) (listener, error) {
	if c.hosts == nil {
		return listener{}, nil
	}
	host := c.hosts.Of(conn.Target())
	if rej := host.Refuses(p, time.Now()); rej != nil {
		return listener{}, c.refusal(rej)
	}
	return listener{host: host, priority: p}, nil
}

// asks returns opts, with one more if the trailer of the call is needed, and the place of the trailer.
func (l *listener) asks(opts []grpc.CallOption) ([]grpc.CallOption, *metadata.MD) {
	if l.host == nil {
		return opts, nil
	}
	trailer := new(metadata.MD)
	return append(slices.Clip(opts), grpc.Trailer(trailer)), trailer
}

// heard takes in the end of the call. A server that asks for a delay refused, whatever the code.
func (l *listener) heard(trailer *metadata.MD, o spillway.Outcome, wish time.Duration) {
	if l.host == nil {
		return
	}
	if wish > 0 {
		o = spillway.Dropped
	}
	l.host.Answered(l.priority, (*trailer)[overload.Key], o, time.Now())
}
