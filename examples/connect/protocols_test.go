package main

import (
	"context"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/examples/internal/flood"
)

var errFull = &spillway.Rejection{Policy: "test", Reason: "full"}

// full is a Policy that refuses everything.
type full struct{}

func (full) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, errFull }
func (full) Done(spillway.Request, spillway.Ticket, spillway.Result)          {}

// Clients of each protocol understand a refusal, and the gate understands how their calls ended.
func TestProtocols(t *testing.T) {
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	t.Cleanup(client.CloseIdleConnections)
	for name, options := range map[string][]connect.ClientOption{
		"Connect": nil, "JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()},
	} {
		t.Run(name, func(t *testing.T) {
			api := spillway.New()
			url := flood.Handler(newHandler)(t, api, spillway.New(full{}))
			call := func(path string) error {
				c := connect.NewClient[durationpb.Duration, emptypb.Empty](client, url+path, options...)
				_, err := c.CallUnary(t.Context(), connect.NewRequest(&durationpb.Duration{}))
				return err
			}
			require.NoError(t, call("/api/work"))
			require.Equal(t, connect.CodeInternal, connect.CodeOf(call("/api/fail")))
			require.Eventually(t, func() bool { return api.Stats().InFlight == 0 }, flood.Patience, time.Millisecond)
			stats := api.Stats()
			require.Equal(t, int64(1), stats.Succeeded, "%+v", stats)
			require.Equal(t, int64(1), stats.Failed, "%+v", stats)

			err := call("/admin/work")
			require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
			var refusal *connect.Error
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, "overloaded", refusal.Message())
			require.Regexp(t, "^[1-3]000$", refusal.Meta().Get("Grpc-Retry-Pushback-Ms"))
			require.Regexp(t, "^[1-3]$", refusal.Meta().Get("Retry-After"))
		})
	}
}
