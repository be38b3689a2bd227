package envoyrls_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillway-go/spillway/gateway/envoyrls"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/rules"
)

func TestHostileRequests(t *testing.T) {
	server := startRedis(t)
	c, s := start(t, envoyrls.Options{Client: server.client(t), Config: of(shop)})
	long := strings.Repeat("x", 100_000)

	many := &commonv3.RateLimitDescriptor{}
	for i := range 10_000 {
		many.Entries = append(many.Entries, &commonv3.RateLimitDescriptor_Entry{Key: "address", Value: fmt.Sprint(i)})
	}
	r := &ratelimitv3.RateLimitRequest{Domain: "shop", Descriptors: []*commonv3.RateLimitDescriptor{many, descriptor("address=a")}}
	require.Equal(t, "OK OK OK", codesOf(t, c, r), "no rule is that deep")
	many.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_YEAR}
	_, err := c.ShouldRateLimit(t.Context(), r)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "descriptors[0].entries: must be 1..32 beside a limit, got 10000")

	for range 2 {
		require.Equal(t, "OK OK", codesOf(t, c, request("address="+long)))
	}
	require.Equal(t, "OVER OVER", codesOf(t, c, request("address="+long)))
	require.Equal(t, "OK OK", codesOf(t, c, request("address="+long+"y")), "long values are different keys")
	client := server.client(t)
	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, k := range keys {
		require.Less(t, len(k), 250, "long values do not fill Redis")
	}

	// Separators in a value do not lead to the limit of another client.
	require.Equal(t, "OK OK", codesOf(t, c, request(`tenant=1|method=POST`)))
	require.Equal(t, "OK OK", codesOf(t, c, request(`tenant=1 method=POST`)))
	require.Equal(t, "OVER OVER", codesOf(t, c, request(`tenant=1 method=POST`)))
	require.Equal(t, "OK OK", codesOf(t, c, request(`tenant=1\ method=POST`)))
	require.Equal(t, "OK OK", codesOf(t, c, request("address={a}:\x00\r\n\"é")))

	// 64 claims are one call; a broken text never reaches the service.
	var all []string
	for i := range 64 {
		all = append(all, fmt.Sprintf("address=%d.", i))
	}
	require.Equal(t, strings.Repeat("OK ", 65), codesOf(t, c, request(all...))+" ")
	_, err = c.ShouldRateLimit(t.Context(), request("address=\xff\xfe"))
	require.Error(t, err)
	require.NotEqual(t, codes.OK, status.Code(err))

	res, err := s.ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{
		Domain: "shop", HitsAddend: math.MaxUint32,
		Descriptors: []*commonv3.RateLimitDescriptor{
			nil, {Entries: []*commonv3.RateLimitDescriptor_Entry{nil}},
			{Entries: descriptor("tried=y").GetEntries(), HitsAddend: wrapperspb.UInt64(math.MaxUint64)},
		},
	})
	require.NoError(t, err, "in the same process, messages can have holes")
	require.Equal(t, ok, res.GetOverallCode())
	_, err = s.ShouldRateLimit(t.Context(), nil)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.Zero(t, s.Stats().Unanswered)
}

func TestOptionsAreChecked(t *testing.T) {
	client := startRedis(t).client(t)
	const twice = "domain: shop\ndescriptors: []"
	for want, o := range map[string]*envoyrls.Options{
		"Client must be set, got nil":          nil,
		"Config must have a source, got none":  {Client: client},
		`Config["x"] must be set, got nil`:     {Client: client, Config: map[string]rules.Source{"x": nil}},
		"Every must be at least 10ms, got 1ms": {Client: client, Config: of(shop), Nodes: 1, Every: time.Millisecond},
		"LeaseFrom must be positive, got":      {Client: client, Config: of(shop), Nodes: 1, LeaseFrom: limiter.Rate{Tokens: -1, Per: 1}},
		"Nodes must":                           {Client: client, Config: of(shop)},
		"Timeout must":                         {Client: client, Config: of(shop), Nodes: 1, Timeout: time.Hour},
		`file1.yaml: domain: must be in one file, got "shop", which is in file0.yaml`: {Client: client, Config: of(shop, twice), Nodes: 1},
		"file0.yaml: line 1: file": {Client: client, Config: of("x: y"), Nodes: 1},
	} {
		_, err := envoyrls.New(o)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "envoyrls: ")
	}
}

// What a Service starts ends with it: its goroutine, and those of leases.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	server := startRedis(t)
	before := runtime.NumGoroutine()
	for range 5 {
		client := server.client(t)
		s, err := envoyrls.New(&envoyrls.Options{
			Client: client, Nodes: 1, LeaseFrom: limiter.Per(1, time.Second), Timeout: 5 * time.Second,
			Config: of("domain: shop\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 9}}, {key: b, rate_limit: {unit: day, requests_per_unit: 9}}]"),
		})
		require.NoError(t, err)
		for range 20 {
			_, err := s.ShouldRateLimit(t.Context(), request("a=1", "b=1"))
			require.NoError(t, err)
		}
		s.Close()
		s.Close()
		require.NoError(t, client.Close())
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond) // goroutines end a moment after Close
	}
	stacks := make([]byte, 1<<16)
	require.LessOrEqual(t, runtime.NumGoroutine(), before, "%s", stacks[:runtime.Stack(stacks, true)])
}

// No message makes a Service panic, and each answer has a status for each descriptor.
func FuzzShouldRateLimit(f *testing.F) {
	s, err := envoyrls.New(&envoyrls.Options{
		Client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}), Config: of(shop), Nodes: 1, Timeout: time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(f, err)
	f.Cleanup(s.Close)
	for _, r := range []*ratelimitv3.RateLimitRequest{request("address=a", "tenant=1 method=POST"), request("vip", "tenant", "tried"), {}} {
		b, err := proto.Marshal(r)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := new(ratelimitv3.RateLimitRequest)
		if proto.Unmarshal(b, in) != nil {
			return
		}
		out, err := s.ShouldRateLimit(context.Background(), in)
		if err == nil && len(out.GetStatuses()) != len(in.GetDescriptors()) || err != nil && status.Code(err) == codes.Internal {
			t.Errorf("%v: %v, %v", in, out, err)
		}
	})
}
