package grpcgate_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// behindHTTP serves the victim by grpc.Server.ServeHTTP behind httpgate, over HTTP/2 in clear text.
func behindHTTP(t *testing.T) *target {
	t.Helper()
	tg := &target{seen: &gatetest.Recorder{}, brk: spillway.Must(breaker.New(nil))}
	tg.s = gated(t, nil) // which sees no call: the attacks read its counts
	victimServer := grpc.NewServer(grpc.MaxRecvMsgSize(messageSize), grpc.MaxSendMsgSize(messageSize), grpc.MaxHeaderListSize(1<<14))
	victimServer.RegisterService(&serviceDesc, victim())
	healthpb.RegisterHealthServer(victimServer, health.NewServer())
	// All attacks run at once, so a call may keep a small machine busy for longer than the default of 100 ms.
	m, err := httpgate.New(spillway.New(tg.seen, tg.brk), &httpgate.Options{MinBudget: time.Second})
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(m.Handler(victimServer))
	srv.Config.Protocols = &http.Protocols{}
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	tg.conn = dial(t, srv.Listener.Addr().String())
	t.Cleanup(func() {
		_ = tg.conn.Close()
		srv.CloseClientConnections()
		srv.Close()
		victimServer.Stop()
	})
	return tg
}

// The attacks on a server are as harmless to a gRPC server that net/http serves, behind httpgate: it has to know what the client
// asked for, how long calls take and who broke off, without an interceptor.
func TestAttacksOnAServerBehindHTTP(t *testing.T) {
	attacks := maps.Clone(serverAttacks())
	// These are on places of streams, which httpgate does not have, or on limits of grpc-go that are not those of net/http.
	for _, name := range []string{"takes all places", "takes all exempt places", "pings without end", "a thousand fields of metadata"} {
		delete(attacks, name)
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tg := behindHTTP(t)
			before := innocent(t, tg.conn)
			attack(t, tg)
			require.Equal(t, before, innocent(t, tg.conn))
			require.Equal(t, breaker.Closed, tg.brk.Stats().State)
			require.Eventually(t, func() bool { return tg.seen.InFlight() == 0 }, time.Minute, 5*time.Millisecond, "nothing is left behind")
			require.NotContains(t, tg.seen.Outcomes(), spillway.Failure)
			require.NotContains(t, tg.seen.Outcomes(), spillway.Dropped)
		})
	}
}
