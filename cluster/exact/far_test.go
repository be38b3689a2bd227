package exact

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// A Redis that is 60 ms away and stood still for a second decides again within two seconds, also if the network has
// dropped all connections meanwhile.
func TestFarRedisIsBackAfterAStall(t *testing.T) {
	for name, drop := range map[string]bool{"connections kept": false, "connections lost": true} {
		t.Run(name, func(t *testing.T) {
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
			proxy.SetLatency(60 * time.Millisecond)
			for kind, client := range redistest.Clients(t, proxy.Addr()) {
				l, err := New(&Options{
					Client: client, Fallback: cluster.RefuseAll, Name: "far", Rules: []limiter.Rule{limiter.Bucket{Rate: limiter.Per(1_000_000, time.Second)}},
				})
				require.NoError(t, err)
				byRedis := func() bool {
					r, err := l.Take(t.Context(), "k", 1)
					require.NoError(t, err)
					return r.Source == cluster.FromRedis
				}
				redistest.Await(t, 10*time.Second, byRedis)
				proxy.BlackHole(true)
				for began := time.Now(); time.Since(began) < time.Second; {
					if !byRedis() {
						redistest.Pause(5 * time.Millisecond)
					}
				}
				if drop {
					proxy.Reset()
				}
				proxy.BlackHole(false)
				began := time.Now()
				redistest.Await(t, 10*time.Second, byRedis)
				back := time.Since(began)
				good := 0
				// A busy machine takes more than the 40 ms that the way leaves of a timeout now and then. Its breaker may open then.
				const asked, enough = 100, 99
				for tries := 0; tries < 10 && good < enough; tries++ {
					redistest.Await(t, 10*time.Second, byRedis)
					good = 0
					for range asked {
						if byRedis() {
							good++
						}
					}
				}
				t.Logf("%s: back after %v, then %d of %d by Redis", kind, back, good, asked)
				require.Less(t, back, 2*time.Second)
				require.GreaterOrEqual(t, good, enough)
			}
		})
	}
}
