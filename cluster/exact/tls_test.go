package exact

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// A limit is exact over TLS with certificates on both sides, also after the server was away, and nobody without a certificate
// takes part in it.
func TestTLSThroughARestart(t *testing.T) {
	dir := t.TempDir()
	pool := redistest.Certificate(t, dir)
	certFile, keyFile, port := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), redistest.FreePort(t)
	s := redistest.Start(t, "--tls-port", port, "--tls-cert-file", certFile, "--tls-key-file", keyFile,
		"--tls-ca-cert-file", certFile, "--tls-auth-clients", "yes")
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	address := net.JoinHostPort("127.0.0.1", port)
	limit := func(conf *tls.Config) *Limit {
		client := redis.NewClient(&redis.Options{Addr: address, TLSConfig: conf})
		t.Cleanup(func() { _ = client.Close() })
		l, err := New(&Options{
			Client: client, Fallback: cluster.RefuseAll, Timeout: 5 * time.Second,
			Rules: []limiter.Rule{limiter.Bucket{Rate: limiter.Per(1, time.Hour), Burst: 50}},
		})
		require.NoError(t, err)
		return l
	}
	l := limit(&tls.Config{RootCAs: pool, ServerName: "localhost", Certificates: []tls.Certificate{cert}})
	for _, key := range []string{"before", "after"} {
		redistest.Await(t, 20*time.Second, func() bool {
			r, err := l.Take(t.Context(), "another", 1)
			return err == nil && r.Source == cluster.FromRedis
		})
		var passed atomic.Int64
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range 10 {
					r, err := l.Take(t.Context(), key, 1)
					if err == nil && r.Allowed && r.Source == cluster.FromRedis {
						passed.Add(1)
					}
				}
			})
		}
		all.Wait()
		require.Equal(t, int64(50), passed.Load())
		require.Zero(t, l.conn.Breaker.Stats().Reopenings, "no breaker opens for connections that ended with the old server")
		s.Restart() // and it forgets all
	}
	for name, conf := range map[string]*tls.Config{
		"no certificate":                 {RootCAs: pool, ServerName: "localhost"},
		"does not trust the server":      {ServerName: "localhost", Certificates: []tls.Certificate{cert}},
		"another name than the server's": {RootCAs: pool, ServerName: "elsewhere", Certificates: []tls.Certificate{cert}},
	} {
		r, err := limit(conf).Take(t.Context(), "k", 1)
		require.NoError(t, err, name)
		require.False(t, r.Allowed, name)
		require.NotEqual(t, cluster.FromRedis, r.Source, name)
	}
	require.Zero(t, s.Do("DBSIZE"))
}
