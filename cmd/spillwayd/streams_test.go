package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
)

// newPair writes a new certificate for a name, and its key, over two files.
func newPair(t *testing.T, cert, key, name string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	text, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text}), 0o600))
}

// overTLS makes p's listener one with TLS for the name, and returns the change and the files.
func overTLS(t *testing.T, name string) (change func(*config.Config), cert, key string) {
	t.Helper()
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	newPair(t, cert, key, name)
	return func(c *config.Config) { c.Listen[0].TLS = &config.TLS{Cert: cert, Key: key} }, cert, key
}

// A certificate is exchanged under load: no request fails, open connections stay, and new ones get the new certificate.
func TestACertificateIsExchangedUnderLoad(t *testing.T) {
	change, cert, key := overTLS(t, "old.test")
	p := start(t, echo, func(c *config.Config) {
		change(c)
		c.Shedder.Disabled = true // what a busy machine has room for is not the question
	})
	url := strings.Replace(p.url, "http:", "https:", 1)
	var (
		clients        sync.WaitGroup
		ended          atomic.Bool
		failed         atomic.Pointer[error]
		answers, fresh [2]atomic.Int64 // by certificate: old and new
	)
	for i := range 6 {
		clients.Go(func() {
			transport := &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: i%2 == 0, DisableKeepAlives: i >= 3,
			}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: patience}
			for !ended.Load() {
				res, err := client.Get(url)
				if err != nil {
					failed.Store(&err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				is := 0
				if res.TLS.PeerCertificates[0].Subject.CommonName == "new.test" {
					is = 1
				}
				if i >= 3 {
					fresh[is].Add(1)
				} else {
					answers[is].Add(1)
				}
			}
		})
	}
	require.Eventually(t, func() bool { return fresh[0].Load() > 10 && answers[0].Load() > 10 }, patience, time.Millisecond)
	require.NoError(t, os.WriteFile(cert, []byte("half a file"), 0o600))
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "the last good one stays") }, patience, time.Millisecond)
	newPair(t, cert, key, "new.test")
	require.Eventually(t, func() bool { return fresh[1].Load() > 10 }, patience, time.Millisecond)
	before := answers[0].Load()
	require.Eventually(t, func() bool { return answers[0].Load() > before+10 }, patience, time.Millisecond, "open connections go on")
	ended.Store(true)
	clients.Wait()
	if err := failed.Load(); err != nil {
		require.NoError(t, *err)
	}
}

// A WebSocket over TLS may be silent for longer than clients may keep others waiting, and carries bytes both ways.
func TestAWebSocketMayBeSilent(t *testing.T) {
	const silence = 300 * time.Millisecond
	change, _, _ := overTLS(t, "shop.test")
	p := start(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nwelcome\n")
		_ = rw.Flush()
		_, _ = io.Copy(c, rw)
	}, func(c *config.Config) {
		change(c)
		c.Listen[0].AnswerTimeout, c.Listen[0].BodyTimeout, c.Listen[0].IdleTimeout, c.Listen[0].HeaderTimeout = silence, silence, silence, patience
		c.Backend.Abandoned = silence
	})
	raw, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer raw.Close()
	require.NoError(t, raw.SetDeadline(time.Now().Add(patience)))
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	_, err = io.WriteString(c, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "welcome\n", line)
	for range 2 {
		time.Sleep(2 * silence) // the client and the service are silent
		_, err = io.WriteString(c, "hello\n")
		require.NoError(t, err)
		line, err = in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "hello\n", line)
	}
}

// A call of gRPC that streams both ways passes message by message, may be silent, and ends with its trailer.
func TestAStreamOfGRPCPassesBothWays(t *testing.T) {
	const silence = 300 * time.Millisecond
	change, _, _ := overTLS(t, "shop.test")
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		w.(http.Flusher).Flush() // the service answers before the client has sent anything
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			_, _ = io.WriteString(w, "echo "+line)
			w.(http.Flusher).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
	}, func(c *config.Config) {
		change(c)
		c.Listen[0].AnswerTimeout, c.Listen[0].BodyTimeout = silence, silence
		c.Backend.URLs[0] = strings.Replace(c.Backend.URLs[0], "http:", "h2c:", 1)
	})
	p.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	body, send := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.Replace(p.url, "http:", "https:", 1)+"/shop.Items/Watch", body)
	require.NoError(t, err)
	r.Header.Set("TE", "trailers")
	r.Header.Set("Content-Type", "application/grpc")
	res, err := p.client.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	for range 3 {
		_, err = io.WriteString(send, "message\n")
		require.NoError(t, err)
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "echo message\n", line)
		time.Sleep(2 * silence) // both sides are silent
	}
	require.NoError(t, send.Close())
	rest, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, "0", res.Trailer.Get("Grpc-Status"))
}
