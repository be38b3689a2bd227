package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// clients are the two ways in which users make one.
func clients(t *testing.T, addr string) map[string]*redis.Client {
	made := map[string]*redis.Client{
		"default":        redis.NewClient(&redis.Options{Addr: addr}),
		"with deadlines": redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}),
	}
	for _, c := range made {
		t.Cleanup(func() { _ = c.Close() })
	}
	return made
}

// A Redis that is 60 ms away and stood still for a second decides again within two seconds, also if the network has
// dropped all connections meanwhile.
func TestFarRedisIsBackAfterAStall(t *testing.T) {
	for name, drop := range map[string]bool{"connections kept": false, "connections lost": true} {
		t.Run(name, func(t *testing.T) {
			proxy := redistest.NewProxy(t, startRedis(t))
			proxy.SetLatency(60 * time.Millisecond)
			for kind, client := range clients(t, proxy.Addr()) {
				l, err := NewLimit(&LimitOptions{
					Client: client, Fallback: RefuseAll, Name: "far", Rules: []limiter.Rule{limiter.Bucket{Rate: limiter.Per(1_000_000, time.Second)}},
				})
				require.NoError(t, err)
				byRedis := func() bool {
					r, err := l.Take(t.Context(), "k", 1)
					require.NoError(t, err)
					return r.Source == FromRedis
				}
				await(t, 10*time.Second, byRedis)
				proxy.BlackHole(true)
				for began := time.Now(); time.Since(began) < time.Second; {
					if !byRedis() {
						pause(5 * time.Millisecond)
					}
				}
				if drop {
					proxy.Reset()
				}
				proxy.BlackHole(false)
				began := time.Now()
				await(t, 10*time.Second, byRedis)
				back := time.Since(began)
				good := 0
				const asked = 100
				for tries := 0; tries < 3 && good < asked*99/100; tries++ { // the machine may be busy in one of them
					good = 0
					for range asked {
						if byRedis() {
							good++
						}
					}
				}
				t.Logf("%s: back after %v, then %d of %d by Redis", kind, back, good, asked)
				require.Less(t, back, 2*time.Second)
				require.GreaterOrEqual(t, good, asked*99/100)
			}
		})
	}
}

// await asks until ok says yes.
func await(t *testing.T, most time.Duration, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); pause(5 * time.Millisecond) {
		require.Less(t, time.Since(began), most)
	}
}

// pause waits in real time, since a real network does not keep any other.
func pause(d time.Duration) { time.Sleep(d) }

// No call takes longer than Timeout, whatever the network does and however many round trips a new connection takes.
func TestTimeoutIsTheLongestThatACallTakes(t *testing.T) {
	const timeout = 500 * time.Millisecond
	proxy := redistest.NewProxy(t, startRedis(t))
	for kind, client := range clients(t, proxy.Addr()) {
		c := mustConn(t, connOptions{client: client, timeout: timeout, breaker: &breaker.Options{Consecutive: 1 << 20}})
		proxy.SetLatency(400 * time.Millisecond) // a new connection takes three round trips and more
		var took []time.Duration
		for i := range 8 {
			if proxy.Reset(); i == 6 {
				proxy.BlackHole(true)
			}
			began := time.Now()
			_, _ = c.run(t.Context(), incr(), []string{"n"}, 1)
			took = append(took, time.Since(began))
		}
		proxy.Heal()
		slices.Sort(took)
		t.Logf("%s: %v", kind, took)
		require.Less(t, took[len(took)-3], 2*timeout, "Timeout, and room for a busy machine; two may be later still")
	}
}

// A laggard is a client's call that takes a time at random, whatever its context says.
type laggard struct{ most time.Duration }

func (l laggard) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l laggard) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error {
		time.Sleep(time.Duration(mathrand.Int64N(int64(l.most))))
		return errors.New("late")
	}
}

func (l laggard) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return l.ProcessHook(nil)(ctx, cmds[0]) }
}

// In virtual time Timeout is exact: one by one, in pipelines, and where more callers come than calls may go on.
func TestTimeoutIsExact(t *testing.T) {
	client := newClient(t, "127.0.0.1:1")
	client.AddHook(laggard{most: time.Second})
	synctest.Test(t, func(t *testing.T) {
		c := mustConn(t, connOptions{client: client, breaker: &breaker.Options{Consecutive: breaker.Off, FailureRate: breaker.Off}})
		s := incr()
		var all sync.WaitGroup
		var late, full atomic.Int64
		for i := range 2 * maxFlights {
			all.Go(func() {
				for range 5 {
					began := time.Now()
					if i%2 == 0 {
						_, _ = c.run(t.Context(), s, []string{"n"}, 1)
					} else {
						_, _ = c.runAll(t.Context(), s, [][]any{s.command([]string{"n"}, []any{1})})
					}
					switch took := time.Since(began); {
					case took > DefaultTimeout:
						late.Add(1)
					case took == DefaultTimeout:
						full.Add(1)
					}
				}
			})
		}
		all.Wait()
		require.Zero(t, late.Load())
		require.Positive(t, full.Load())
		time.Sleep(2 * time.Second) // for calls whose callers have left
	})
}

// In real time the machine adds to it. SPILLWAY_LONG=1 makes enough calls for a p99.9.
func TestTimeoutInRealTime(t *testing.T) {
	long := os.Getenv("SPILLWAY_LONG") != ""
	lasts := time.Second
	if long {
		lasts = 10 * time.Second
	}
	proxy := redistest.NewProxy(t, startRedis(t))
	for kind, client := range clients(t, proxy.Addr()) {
		c := mustConn(t, connOptions{client: client, breaker: &breaker.Options{Consecutive: breaker.Off, FailureRate: breaker.Off}})
		var mu sync.Mutex
		var over []time.Duration // by how much calls exceeded Timeout
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for end := time.Now().Add(lasts); time.Now().Before(end); {
					began := time.Now()
					_, _ = c.run(t.Context(), incr(), []string{"n"}, 1)
					took := time.Since(began) - DefaultTimeout
					mu.Lock()
					over = append(over, took)
					mu.Unlock()
				}
			})
		}
		stop := make(chan struct{})
		faults := make(chan struct{})
		var machine time.Duration // the most by which it wakes a goroutine late that does nothing else
		all.Go(func() {
			for end := time.Now().Add(lasts); time.Now().Before(end); {
				began := time.Now()
				pause(10 * time.Millisecond)
				machine = max(machine, time.Since(began)-10*time.Millisecond)
			}
		})
		go func() {
			defer close(faults)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
				proxy.SetLatency(time.Duration(i%5) * 40 * time.Millisecond)
				proxy.BlackHole(i%4 == 3)
				if i%9 == 0 {
					proxy.Reset()
				}
			}
		}()
		all.Wait()
		close(stop)
		<-faults
		proxy.Heal()
		slices.Sort(over)
		p999, most := over[len(over)*999/1000], over[len(over)-1]
		reached, _ := slices.BinarySearch(over, 0)
		require.Greater(t, len(over)-reached, 40, "calls that Timeout ended")
		t.Logf("%s: %d calls, p99.9 of what exceeds Timeout %v, the most %v, of the machine %v", kind, len(over), p999, most, machine)
		if long {
			require.Less(t, p999, 5*time.Millisecond+machine)
		}
		require.Less(t, most, 50*time.Millisecond+2*machine)
	}
}

// A call that Redis was never sent, since its caller had gone, is never sent afterwards either.
func TestCallsThatWereGivenUpAreNotSent(t *testing.T) {
	addr := startRedis(t)
	direct := newClient(t, addr)
	proxy := redistest.NewProxy(t, addr)
	proxy.SetLatency(100 * time.Millisecond)
	for kind, client := range clients(t, proxy.Addr()) {
		require.NoError(t, direct.FlushAll(t.Context()).Err())
		c := mustConn(t, connOptions{client: client, timeout: 50 * time.Millisecond})
		_, err := c.run(t.Context(), incr(), []string{"n"}, 1) // the connection takes far longer
		require.ErrorIs(t, err, ErrRedis)
		require.Never(t, func() bool { return direct.Exists(t.Context(), "n").Val() != 0 }, 600*time.Millisecond, 20*time.Millisecond, kind)
		await(t, 10*time.Second, func() bool { return client.PoolStats().IdleConns > 0 })
	}
}

// A flood of callers waits for the connections of the client, which is not Redis's fault: its breaker stays closed.
func TestFloodOfCallersLeavesTheBreakerClosed(t *testing.T) {
	proxy := redistest.NewProxy(t, startRedis(t))
	for kind, o := range map[string]*redis.Options{
		"default":        {Addr: proxy.Addr(), PoolSize: 4},
		"with deadlines": {Addr: proxy.Addr(), PoolSize: 4, ContextTimeoutEnabled: true},
		"short wait":     {Addr: proxy.Addr(), PoolSize: 4, PoolTimeout: 100 * time.Millisecond},
	} {
		t.Run(kind, func(t *testing.T) {
			client := redis.NewClient(o)
			defer client.Close()
			proxy.Heal()
			c := mustConn(t, connOptions{client: client, timeout: 2 * time.Second})
			_, err := c.run(t.Context(), incr(), []string{"n"}, 1)
			require.NoError(t, err)
			proxy.SetLatency(100 * time.Millisecond) // so there is an answer for 80 of them in time
			var busy, answered, other atomic.Int64
			var all sync.WaitGroup
			for range 300 {
				all.Go(func() {
					_, err := c.run(context.Background(), incr(), []string{"n"}, 1)
					var lost *RedisError
					switch {
					case err == nil:
						answered.Add(1)
					case errors.As(err, &lost) && lost.Reason == ReasonBusy:
						busy.Add(1)
					default:
						other.Add(1)
					}
				})
			}
			all.Wait()
			t.Logf("answered %d, busy %d, other %d; %d refused by the breaker", answered.Load(), busy.Load(), other.Load(), c.brk.Stats().Refused)
			require.Positive(t, answered.Load())
			require.Greater(t, busy.Load(), int64(150))
			require.Zero(t, c.brk.Stats().Refused)
			require.Equal(t, breaker.Closed, c.brk.State())
			_, err = c.run(t.Context(), incr(), []string{"n"}, 1)
			require.NoError(t, err)
		})
	}
}

// All that goes to Redis goes by TLS too, on a connection that takes two round trips more.
func TestTLSToAFarRedis(t *testing.T) {
	dir := t.TempDir()
	pool := writeCertificate(t, dir)
	s := redistest.Start(t)
	port := redistest.FreePort(t)
	s.Do("CONFIG", "SET", "tls-cert-file", filepath.Join(dir, "cert.pem"), "tls-key-file", filepath.Join(dir, "key.pem"),
		"tls-ca-cert-file", filepath.Join(dir, "cert.pem"), "tls-auth-clients", "no", "tls-port", port)
	proxy := redistest.NewProxy(t, net.JoinHostPort("127.0.0.1", port))
	proxy.SetLatency(40 * time.Millisecond)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), TLSConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}})
	defer client.Close()
	l, err := NewLimit(&LimitOptions{Client: client, Fallback: RefuseAll, Rules: []limiter.Rule{perSecond(1000, 1000)}})
	require.NoError(t, err)
	await(t, 10*time.Second, func() bool {
		r, err := l.Take(t.Context(), "k", 1)
		return err == nil && r.Source == FromRedis
	})
	proxy.Reset()
	await(t, 10*time.Second, func() bool {
		r, err := l.Take(t.Context(), "k", 1)
		return err == nil && r.Source == FromRedis
	})
	m, err := NewSemaphore(&SemaphoreOptions{Client: client, Timeout: 5 * time.Second})
	require.NoError(t, err)
	defer m.Close()
	held, err := m.Acquire(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, held.Release())
}

// writeCertificate writes a certificate of its own for localhost.
func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	like := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, like, like, key.Public(), key)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cert.pem"), cert, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(cert))
	return pool
}
