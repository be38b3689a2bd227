package envoyrls_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/gateway/envoyrls"
	"github.com/spillway-go/spillway/limiter"
)

// BenchmarkDecision shows what an answer costs beside the call of Redis that it needs. Nothing goes over gRPC here.
func BenchmarkDecision(b *testing.B) {
	client := startRedis(b).client(b)
	s, err := envoyrls.New(&envoyrls.Options{
		Client: client, Nodes: 1, Timeout: 5 * time.Second, LeaseFrom: limiter.Per(1_000_000, time.Second), Logger: slog.New(slog.DiscardHandler),
		Config: of(`
domain: shop
descriptors:
  - {key: a, rate_limit: {unit: year, requests_per_unit: 2000000000}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 1900000000}}
  - {key: none, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: leased, rate_limit: {unit: second, requests_per_unit: 1000000000}}
`),
	})
	require.NoError(b, err)
	defer s.Close()
	limit, err := exact.New(&exact.Options{
		Client: client, Rules: []limiter.Rule{limiter.FixedWindow{Limit: 1 << 30, Period: 365 * 24 * time.Hour}}, Nodes: 1, Timeout: 5 * time.Second,
	})
	require.NoError(b, err)
	b.Run("exact.TakeAll of two", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r, err := exact.TakeAll(b.Context(), exact.Claim{Limit: limit, Key: "a"}, exact.Claim{Limit: limit, Key: "b"})
			if err != nil || !r[0].Allowed {
				b.Fatal(r, err)
			}
		}
	})
	for _, c := range []struct {
		name string
		ask  []string
	}{
		{"two descriptors", []string{"a=1", "b=1"}},
		{"two descriptors, refused", []string{"a=1", "none=1"}},
		{"leased", []string{"leased=1"}},
		{"without a rule", []string{"unknown=1"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := request(c.ask...)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.ShouldRateLimit(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
