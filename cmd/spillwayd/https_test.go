package main

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
)

// A backend is asked over TLS only if an authority vouches for its name, with HTTP/2 if it speaks that.
func TestBackendsOverTLS(t *testing.T) {
	for name, c := range map[string]struct {
		ca    string // "own", "" for those of the system, or "another"
		host  string
		http1 bool
		want  string // a part of the reason in the log; "" if requests pass
	}{
		"own authority":       {"own", "127.0.0.1", false, ""},
		"HTTP/1.1 only":       {"own", "127.0.0.1", true, ""},
		"unknown authority":   {"", "127.0.0.1", false, "certificate signed by unknown authority"},
		"another authority":   {"another", "127.0.0.1", false, "certificate signed by unknown authority"},
		"another host's name": {"own", "localhost", false, "not localhost"},
	} {
		t.Run(name, func(t *testing.T) {
			backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = fmt.Fprintf(w, "%s %s %s", r.Proto, r.Host, r.Header.Get("X-Forwarded-Proto"))
			}))
			backend.EnableHTTP2 = !c.http1
			backend.Config.ErrorLog = nil
			backend.StartTLS() // for 127.0.0.1 and example.com
			defer backend.Close()
			dir := t.TempDir()
			own, another := filepath.Join(dir, "own.pem"), filepath.Join(dir, "another.pem")
			text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate().Raw})
			require.NoError(t, os.WriteFile(own, text, 0o600))
			newPair(t, another, filepath.Join(dir, "another.key"), "127.0.0.1")
			p := start(t, echo, func(conf *config.Config) {
				conf.Backend.URLs[0] = strings.Replace(backend.URL, "127.0.0.1", c.host, 1)
				conf.Backend.CA = map[string]string{"own": own, "another": another}[c.ca]
				conf.Backend.Health = &config.Health{Path: "/", Every: 100 * time.Millisecond, Timeout: patience, Failures: 1, Successes: 1}
			})
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url, nil)
			require.NoError(t, err)
			r.Host = "shop.test"
			res, body := p.do(r)
			if c.want == "" {
				require.Equal(t, http.StatusOK, res.StatusCode)
				proto := "HTTP/2.0"
				if c.http1 {
					proto = "HTTP/1.1"
				}
				require.Equal(t, proto+" shop.test http", body, "the name of the certificate is that of the URL, and the backend sees the client's")
				require.Eventually(t, p.s.proxy.Ready, patience, 10*time.Millisecond, "checks use TLS too")
				return
			}
			require.Equal(t, http.StatusBadGateway, res.StatusCode)
			require.Empty(t, body, "clients learn nothing of certificates")
			require.Contains(t, p.log.String(), "spillwayd: a backend gave no answer", "operators do")
			require.Contains(t, p.log.String(), `"spillwayd: the live page, /metrics, /healthz and /readyz" address=127.0.0.1:`)
			require.Eventually(t, func() bool { return !p.s.proxy.Ready() && strings.Contains(p.log.String(), c.want) }, patience, 10*time.Millisecond)
		})
	}
}

// A WebSocket needs HTTP/1.1, also to a backend that speaks HTTP/2 over TLS.
func TestUpgradesPassOverTLS(t *testing.T) {
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotImplemented)
			return
		}
		defer c.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(c, rw)
	}))
	backend.EnableHTTP2 = true
	backend.StartTLS()
	defer backend.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate().Raw}), 0o600))
	p := start(t, echo, func(c *config.Config) { c.Backend.URLs[0], c.Backend.CA = backend.URL, file })
	res, _ := p.get(p.url) // so that a connection of HTTP/2 is open
	require.Equal(t, http.StatusNotImplemented, res.StatusCode)
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(c)
	res, err = http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	_, err = io.WriteString(c, "hello\n")
	require.NoError(t, err)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
}
