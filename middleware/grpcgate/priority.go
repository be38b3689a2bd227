package grpcgate

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/priority"
)

// PriorityOptions say how [NewPriority] reads the priority of a call. The zero PriorityOptions trust no peer.
type PriorityOptions struct {
	// Trusted are the networks of the peers whose metadata counts: your proxies and your own services. A network must
	// have at least 1 bit. If Trusted is empty and TrustUnix is false, no metadata counts.
	Trusted []netip.Prefix
	// TrustUnix says that peers without an IP address, through a Unix socket or in memory, are trusted too.
	TrustUnix bool
	// Metadata is the key of the metadata with the priority, in any case: an integer, or a name such as "critical" or
	// "normal-1". A call with another value, or with several, is Normal. If Metadata is empty, it is "spillway-priority".
	Metadata string
	// LowerFirst says that lower numbers are more important, as in x-message-priority of Envoy.
	LowerFirst bool
	// NormalIs is the number that means [spillway.Normal]. If NormalIs is 0, it is 0.
	NormalIs int
	// Min and Max are the bounds of the result; other priorities count as the nearest bound. If both are 0, they are
	// [spillway.Sheddable] and [spillway.Critical]. They do not change the Normal of a call without a priority.
	Min, Max spillway.Priority
}

// NewPriority returns a function for [Options.Request] that reads the priority of a call from its metadata. A call without
// a valid priority from a trusted peer is [spillway.Normal]. The function is safe for concurrent use. If o is nil, it
// has the defaults. The error names the invalid field.
//
//	priority := spillway.Must(grpcgate.NewPriority(&grpcgate.PriorityOptions{Trusted: mesh}))
//	server, err := grpcgate.NewServer(gate, &grpcgate.Options{
//		Request: func(ctx context.Context, method string) spillway.Request {
//			return spillway.Request{Priority: priority(ctx)}
//		},
//	})
func NewPriority(o *PriorityOptions) (func(ctx context.Context) spillway.Priority, error) {
	var opts PriorityOptions
	if o != nil {
		opts = *o
	}
	if opts.Metadata == "" {
		opts.Metadata = "spillway-priority"
	}
	key := strings.ToLower(opts.Metadata)
	if strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || strings.HasSuffix(key, "-bin") {
		return nil, fmt.Errorf("grpcgate: Priority: Metadata must be a key of letters, digits and -_. without -bin, got %q", opts.Metadata)
	}
	rule, err := priority.New("grpcgate", priority.Rule{
		Trusted: opts.Trusted, TrustUnix: opts.TrustUnix, Lower: opts.LowerFirst, Zero: opts.NormalIs, Min: opts.Min, Max: opts.Max,
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the package and the field
	}
	return func(ctx context.Context) spillway.Priority {
		values := metadata.ValueFromIncomingContext(ctx, key)
		if len(values) != 1 {
			return spillway.Normal
		}
		from, ok := peer.FromContext(ctx)
		if !ok || from.Addr == nil || !rule.Trusts(addrOf(from.Addr)) {
			return spillway.Normal
		}
		p, _ := rule.Parse(values[0])
		return p
	}, nil
}
