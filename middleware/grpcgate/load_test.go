package grpcgate_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/weightedroundrobin" // the policy of the client
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// loaded is a server that answers after a while, and whose gate admits a number of calls at once.
func loaded(t *testing.T, limit int, o grpcgate.Options) (addr string, calls *atomic.Int64) {
	t.Helper()
	gate := spillway.New(spillway.Must(adaptive.New(&adaptive.Options{Initial: limit, Min: limit, Max: limit})))
	o.Exempt = func(string) bool { return false }
	gated, err := grpcgate.NewServer(gate, &o)
	require.NoError(t, err)
	calls = new(atomic.Int64)
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(gated.Unary, func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		calls.Add(1)
		time.Sleep(20 * time.Millisecond) // the work
		return h(ctx, req)
	}))
	healthpb.RegisterHealthServer(s, health.NewServer())
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = s.Serve(lis) }()
	t.Cleanup(s.Stop)
	return lis.Addr().String(), calls
}

func TestLoadReportModes(t *testing.T) {
	for mode, want := range map[grpcgate.LoadReport][2]int{
		grpcgate.ReportOff: {0, 0}, grpcgate.ReportOnRequest: {0, 1}, grpcgate.ReportAlways: {1, 1},
	} {
		addr, _ := loaded(t, 1, grpcgate.Options{LoadReport: mode})
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		asking := metadata.AppendToOutgoingContext(t.Context(), "endpoint-load-metrics-format", "text")
		for i, ctx := range []context.Context{t.Context(), asking} {
			var trailer metadata.MD
			_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer))
			require.NoError(t, err)
			require.Len(t, trailer["endpoint-load-metrics-bin"], want[i], "%v", mode)
		}
		require.NoError(t, conn.Close())
	}
}

// A client of grpc-go with weighted_round_robin sends a server of half the capacity about half as many calls.
func TestWeightedRoundRobinReadsTheReports(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes some seconds of real time")
	}
	var (
		addresses []resolver.Address
		calls     []*atomic.Int64
	)
	for _, limit := range []int{32, 32, 16} {
		addr, n := loaded(t, limit, grpcgate.Options{LoadReport: grpcgate.ReportAlways})
		addresses, calls = append(addresses, resolver.Address{Addr: addr}), append(calls, n)
	}
	r := manual.NewBuilderWithScheme("three")
	r.InitialState(resolver.State{Addresses: addresses})
	const config = `{"loadBalancingConfig":[{"weighted_round_robin":
		{"blackoutPeriod":"0.1s","weightUpdatePeriod":"0.1s","weightExpirationPeriod":"180s","errorUtilizationPenalty":1}}]}`
	conn, err := grpc.NewClient("three:///", grpc.WithResolvers(r), grpc.WithDefaultServiceConfig(config),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	offer := func(d time.Duration) { // 40 callers, for 80 places
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		done := make(chan struct{})
		for range 40 {
			go func() {
				for ctx.Err() == nil {
					_, _ = client.Check(ctx, &healthpb.HealthCheckRequest{})
				}
				done <- struct{}{}
			}()
		}
		for range 40 {
			<-done
		}
	}
	offer(4 * time.Second) // it learns the weights
	before := [3]int64{calls[0].Load(), calls[1].Load(), calls[2].Load()}
	offer(4 * time.Second)
	var got [3]float64
	for i := range got {
		got[i] = float64(calls[i].Load() - before[i])
	}
	t.Logf("calls served: %v", got)
	whole := (got[0] + got[1]) / 2
	require.InDelta(t, 1, got[0]/got[1], 0.35)
	require.InDelta(t, 0.55, got[2]/whole, 0.25, "half the capacity; without weights it would be 1")
}
