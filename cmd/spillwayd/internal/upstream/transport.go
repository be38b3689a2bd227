package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
)

const (
	// mostIdle connections are kept to each backend. The default of net/http, 2, makes a proxy dial for most requests, which
	// doubles its CPU time.
	mostIdle = 1024
	idleLife = 90 * time.Second
)

// newTransport returns a Transport for all backends. It compresses nothing, and starts no timer for a request.
func newTransport(o *config.Backend, backends []*backend) (*http.Transport, error) {
	dialer := &net.Dialer{Timeout: o.ConnectTimeout, KeepAlive: 15 * time.Second}
	sockets := map[string]string{} // by address
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	for i, b := range backends {
		if b.socket != "" {
			sockets[b.host+":80"] = b.socket
		}
		if strings.HasPrefix(o.URLs[i], "h2c:") {
			protocols.SetUnencryptedHTTP2(true)
		}
	}
	if protocols.UnencryptedHTTP2() { // a Transport that may speak both speaks HTTP/1 in clear text
		for i, u := range o.URLs {
			if strings.HasPrefix(u, "http:") || strings.HasPrefix(u, "unix:") {
				return nil, fmt.Errorf("backend.urls[%d]: must be h2c like the other backends, got %q", i, u)
			}
		}
		protocols.SetHTTP1(false)
	}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if path, ok := sockets[address]; ok {
				network, address = "unix", path
			}
			return dialer.DialContext(ctx, network, address)
		},
		MaxIdleConnsPerHost: mostIdle, MaxConnsPerHost: o.MaxConnections, IdleConnTimeout: idleLife,
		DisableCompression: true, TLSHandshakeTimeout: o.ConnectTimeout, ExpectContinueTimeout: time.Second,
		Protocols: &protocols,
	}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("backend.ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("backend.ca: must be a PEM file with certificates, got %q", o.CA)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return t, nil
}
