package grpcgate_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

func TestPriority(t *testing.T) {
	own := grpcgate.PriorityOptions{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	lower := grpcgate.PriorityOptions{TrustUnix: true, Metadata: "X-Message-Priority", LowerFirst: true, NormalIs: 8}
	friend := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3)}
	for _, c := range []struct {
		o    grpcgate.PriorityOptions
		peer net.Addr
		md   metadata.MD
		want spillway.Priority
	}{
		{own, friend, metadata.Pairs("spillway-priority", "critical"), spillway.Critical},
		{own, friend, metadata.Pairs("spillway-priority", "-9"), spillway.Sheddable},
		{own, friend, metadata.Pairs("spillway-priority", "soon"), spillway.Normal},
		{own, friend, metadata.Pairs("spillway-priority", "1", "spillway-priority", "2"), spillway.Normal},
		{own, friend, nil, spillway.Normal},
		{own, &net.TCPAddr{IP: net.IPv4(11, 1, 2, 3)}, metadata.Pairs("spillway-priority", "4"), spillway.Normal},
		{own, &net.UnixAddr{Name: "@"}, metadata.Pairs("spillway-priority", "4"), spillway.Normal},
		{own, nil, metadata.Pairs("spillway-priority", "4"), spillway.Normal},
		{grpcgate.PriorityOptions{}, friend, metadata.Pairs("spillway-priority", "4"), spillway.Normal},
		{lower, &net.UnixAddr{Name: "@"}, metadata.Pairs("x-message-priority", "6"), 2},
	} {
		priority, err := grpcgate.NewPriority(&c.o)
		require.NoError(t, err)
		ctx := metadata.NewIncomingContext(t.Context(), c.md)
		if c.peer != nil {
			ctx = peer.NewContext(ctx, &peer.Peer{Addr: c.peer})
		}
		require.Equal(t, c.want, priority(ctx), "%+v", c)
	}
	_, err := grpcgate.NewPriority(&grpcgate.PriorityOptions{Metadata: "priority-bin"})
	require.EqualError(t, err, `grpcgate: Priority: Metadata must be a key of letters, digits and -_. without -bin, got "priority-bin"`)
	_, err = grpcgate.NewPriority(&grpcgate.PriorityOptions{Min: 1})
	require.ErrorContains(t, err, "grpcgate: Priority: Min must not be above Max")
	_, err = grpcgate.NewPriority(nil)
	require.NoError(t, err)
}

// A watcher keeps the last request that it saw.
type watcher struct{ seen *spillway.Request }

func (w watcher) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	*w.seen = r
	return 0, nil
}

func (watcher) Done(spillway.Request, spillway.Ticket, spillway.Result) {}

// The route of a call is its method, on both sides.
func TestRouteIsTheMethod(t *testing.T) {
	var server, client spillway.Request
	gate := spillway.Must(grpcgate.NewClient(spillway.New(watcher{&client}), nil))
	conn := start(t, false, &service{}, behind(gated(t, nil, watcher{&server})), through(gate))
	_, err := echo(t.Context(), conn, "hello")
	require.NoError(t, err)
	require.Equal(t, client.Route, server.Route)
	require.Regexp(t, "^/.+/.+$", server.Route)
}
