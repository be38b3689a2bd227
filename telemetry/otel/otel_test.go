package otel_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/grpcgate"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
	"github.com/spillway-go/spillway/telemetry/otel"
)

func Example() {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	gate := spillway.New(spillway.Must(limiter.New(limiter.Concurrency{Name: "pool", Limit: 1})))
	registration, err := otel.Register(provider.Meter("spillway"), map[string]stats.Source{"api": gate})
	if err != nil {
		panic(err)
	}
	defer func() { _ = registration.Unregister() }()

	for range 3 {
		_, _ = gate.Enter(context.Background(), spillway.Request{})
	}
	for _, p := range points(reader, "spillway.gate.refusals") {
		fmt.Println(p.Attributes.Encoded(attribute.DefaultEncoder()), p.Value)
	}
	// Output:
	// spillway.name=api,spillway.policy=pool,spillway.reason=limit reached 2
}

// points returns the points of one metric.
func points(reader sdkmetric.Reader, name string) []metricdata.DataPoint[float64] {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		panic(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[float64]:
				return data.DataPoints
			case metricdata.Gauge[float64]:
				return data.DataPoints
			}
		}
	}
	return nil
}

func TestRegister(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	queue := spillway.Must(limiter.New(limiter.Queue{Name: "jobs", Limit: 1, MaxQueue: 1, MaxWait: 1}))
	gate := spillway.New(spillway.Must(shedder.New(nil)), queue)
	registration, err := otel.Register(provider.Meter("spillway"), map[string]stats.Source{"api": gate, "again": gate})
	require.NoError(t, err)

	for range 2 {
		_, _ = gate.Enter(t.Context(), spillway.Request{})
	}
	require.Len(t, points(reader, "spillway.gate.in_flight"), 1, "a source that is there twice appears once")
	require.InDelta(t, 1, points(reader, "spillway.gate.in_flight")[0].Value, 0)
	require.NotEmpty(t, points(reader, "spillway.demand"))
	for _, p := range points(reader, "spillway.limiter.wait.count") {
		result, _ := p.Attributes.Value("spillway.result")
		require.Equal(t, result.AsString() == "refused", p.Value == 1, "%v", p)
	}
	require.NoError(t, registration.Unregister())
	require.Empty(t, points(reader, "spillway.gate.in_flight"))
}

// full refuses everything.
func full() *spillway.Gate {
	gate := spillway.New(spillway.Must(limiter.New(limiter.Concurrency{Name: "pool", Limit: 1})))
	_, _ = gate.Enter(context.Background(), spillway.Request{})
	return gate
}

// marked reports whether exactly one span was marked, and how many there are.
func marked(spans *tracetest.SpanRecorder) (marked bool, all int) {
	for _, s := range spans.Ended() {
		for _, a := range s.Attributes() {
			if a.Key == "spillway.policy" && a.Value.AsString() == "pool" {
				marked = true
			}
		}
	}
	return marked, len(spans.Ended())
}

func TestMarkBesideOtelHTTP(t *testing.T) {
	m, err := httpgate.New(full(), &httpgate.Options{Refuse: func(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection) {
		otel.Mark(r.Context(), rej)
		httpgate.WriteRefusal(w, r, rej)
	}})
	require.NoError(t, err)
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, outside := range []bool{true, false} {
		spans := tracetest.NewSpanRecorder()
		traced := otelhttp.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
		h := otelhttp.NewHandler(m.Handler(ok), "api", traced)
		if !outside {
			h = m.Handler(otelhttp.NewHandler(ok, "api", traced))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		got, all := marked(spans)
		require.Equal(t, outside, got, "a gate outside the instrumentation has no span to mark")
		require.Equal(t, outside, all == 1)
	}
}

func TestMarkBesideOtelGRPC(t *testing.T) {
	server, err := grpcgate.NewServer(full(), &grpcgate.Options{Exempt: func(string) bool { return false }})
	require.NoError(t, err)
	mark := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		res, err := handler(ctx, req)
		otel.Mark(ctx, err)
		return res, err
	}
	for _, outside := range []bool{true, false} {
		spans := tracetest.NewSpanRecorder()
		traced := otelgrpc.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
		chain := []grpc.UnaryServerInterceptor{mark, server.Unary}
		if !outside {
			chain = []grpc.UnaryServerInterceptor{server.Unary, mark}
		}
		s := grpc.NewServer(grpc.StatsHandler(otelgrpc.NewServerHandler(traced)), grpc.ChainUnaryInterceptor(chain...))
		healthpb.RegisterHealthServer(s, health.NewServer())
		lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() { _ = s.Serve(lis) }()
		conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.NoError(t, conn.Close())
		s.GracefulStop()
		got, all := marked(spans)
		require.Equal(t, outside, got, "an interceptor behind the gate does not see a refusal")
		require.Equal(t, 1, all)
	}
}

func TestMarkLeavesOtherErrorsAlone(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("t").Start(t.Context(), "s")
	otel.Mark(ctx, nil)
	otel.Mark(ctx, context.Canceled)
	otel.Mark(t.Context(), spillway.ErrRejected)
	span.End()
	require.Empty(t, spans.Ended()[0].Attributes())
}
