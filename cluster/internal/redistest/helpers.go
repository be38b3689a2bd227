package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster"
)

// NewClient returns a client of the server or proxy at addr.
func NewClient(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Clients returns the two kinds of client that users make: without deadlines, which is the default, and with them.
func Clients(t testing.TB, addr string) map[string]*redis.Client {
	made := map[string]*redis.Client{"default": redis.NewClient(&redis.Options{Addr: addr}), "with deadlines": NewClient(t, addr)}
	t.Cleanup(func() { _ = made["default"].Close() })
	return made
}

// Await asks until ok returns true, for most of the time.
func Await(t testing.TB, most time.Duration, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); Pause(5 * time.Millisecond) {
		require.Less(t, time.Since(began), most)
	}
}

// Pause waits in real time, since a real network has no virtual time.
func Pause(d time.Duration) { time.Sleep(d) }

// Silent returns the address of a server that accepts connections and never answers.
func Silent(t testing.TB) string {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			if _, err := ln.Accept(); err != nil {
				return
			}
		}
	}()
	return ln.Addr().String()
}

// CommandCalls returns how often a server ran a command.
func CommandCalls(t testing.TB, client *redis.Client, name string) int64 {
	t.Helper()
	_, rest, _ := strings.Cut(client.Info(t.Context(), "commandstats").Val(), "cmdstat_"+name+":calls=")
	digits, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// Certificate writes a certificate of its own for localhost.
func Certificate(t testing.TB, dir string) *x509.CertPool {
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

// User returns a client of a user with these rights and no others.
func (s *Server) User(rights ...any) *redis.Client {
	s.Do(append([]any{"ACL", "SETUSER", "app", "reset", "on", ">secret"}, rights...)...)
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "app", Password: "secret"})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// RequireReason checks that err is a RedisError for some reason.
func RequireReason(t testing.TB, err error, reason string) {
	t.Helper()
	var lost *cluster.RedisError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, reason, lost.Reason, "%v", err)
	require.ErrorAs(t, err, new(*cluster.RedisError))
}
