package lease

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/cluster/lease/internal/machine"
	"github.com/spillway-go/spillway/limiter"
)

// benchQuota returns a quota whose key "k" is leased.
func benchQuota(b *testing.B, rate int) *Limit {
	b.Helper()
	s := redistest.Start(b)
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	q, err := New(&Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(rate, time.Second)}, Nodes: 1})
	require.NoError(b, err)
	b.Cleanup(func() {
		q.Close()
		_ = client.Close()
	})
	for st, _ := q.KeyStats("k"); st.Source != cluster.FromLease || st.Grant == 0; st, _ = q.KeyStats("k") {
		_ = admit(q, "k")
	}
	return q
}

func BenchmarkLimitAdmit(b *testing.B) {
	for name, rate := range map[string]int{"admitted": 1_000_000_000, "refused": 100} {
		q := benchQuota(b, rate)
		r := spillway.Request{Key: "k", Arrived: time.Now()}
		ctx := context.Background()
		b.Run(name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = q.Admit(ctx, r)
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _ = q.Admit(ctx, r)
				}
			})
		})
	}
}

// BenchmarkLeaseScript measures what a renewal costs Redis, by its own account.
func BenchmarkLeaseScript(b *testing.B) {
	benchScript(b, "renewal", defaultInterval)
	benchScript(b, "with the level", time.Microsecond) // which is worked out each time, and not a few times per interval
}

func benchScript(b *testing.B, name string, interval time.Duration) {
	b.Helper()
	for _, nodes := range []int{8, 32, 128, 512, 1000} {
		b.Run(name+"/"+strconv.Itoa(nodes), func(b *testing.B) {
			s := redistest.Start(b)
			c, err := call.New(call.Options{Kind: "lease", Client: s.Client()})
			require.NoError(b, err)
			cfg := machine.Config{Rate: 1e5, Burst: 1e4, Interval: interval, TTL: time.Minute}
			patient := strings.Replace(leaseLua, "SILENCE = 1100000, 1.5", "SILENCE = 1100000, 1e9", 1) // or it looks after each pause
			script, names := call.NewScript(call.Clock, patient), []string{"{b}:lease", "{b}:mark"}
			seq := make([]uint64, nodes)
			i := 0
			for b.Loop() {
				n := i % nodes
				i++
				args := newScriptArgs("node"+strconv.Itoa(n), &cfg)
				q := machine.Request{Seq: seq[n] + 1, Ack: seq[n], Want: float64(n * 1000), Has: 1e5, Weight: 1}
				seq[n]++
				if _, err := c.Call(b.Context(), script, names, args.sync(&q)...); err != nil {
					b.Fatal(err)
				}
			}
			info := s.Client().InfoMap(b.Context(), "commandstats").Val()["Commandstats"]["cmdstat_evalsha"]
			_, rest, _ := strings.Cut(info, "usec_per_call=")
			rest, _, _ = strings.Cut(rest, ",")
			usec, err := strconv.ParseFloat(rest, 64)
			require.NoError(b, err)
			b.ReportMetric(usec, "server-µs/op")
		})
	}
}
