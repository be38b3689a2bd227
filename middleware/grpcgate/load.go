package grpcgate

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/spillway-go/spillway/internal/orca"
)

// loadKey is the trailer that load balancers read.
const loadKey = "endpoint-load-metrics-bin"

// reportLoad sets the trailer of a call with the load report, if the call is to get one.
func (s *Server) reportLoad(ctx context.Context, setTrailer func(metadata.MD)) {
	if s.o.LoadReport == ReportOnRequest && len(metadata.ValueFromIncomingContext(ctx, orca.Format)) == 0 {
		return
	}
	setTrailer(metadata.MD{loadKey: {s.load.Report(time.Now()).Binary}})
}
