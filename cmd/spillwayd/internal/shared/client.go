package shared

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
)

// idle is the number of connections that are open before requests need them: opening many at once takes longer than the timeout.
const idle = 8

// connect returns a client, without asking Redis. The errors do not show the password.
func connect(o *config.Redis) (redis.UniversalClient, error) {
	if !o.Cluster {
		c, err := redis.ParseURL(o.URL)
		if err != nil {
			return nil, errURL
		}
		c.ContextTimeoutEnabled, c.MaxRetries, c.DialerRetries, c.MinIdleConns = true, -1, 1, idle
		if o.PasswordFile != "" {
			c.CredentialsProviderContext = credentials(c.Username, o.PasswordFile)
		}
		if err := verify(c.TLSConfig, o); err != nil {
			return nil, err
		}
		return redis.NewClient(c), nil
	}
	c, err := redis.ParseClusterURL(o.URL)
	if err != nil {
		return nil, errURL
	}
	c.ContextTimeoutEnabled, c.MaxRetries, c.DialerRetries, c.MinIdleConns = true, -1, 1, idle
	if o.PasswordFile != "" {
		c.CredentialsProviderContext = credentials(c.Username, o.PasswordFile)
	}
	if err := verify(c.TLSConfig, o); err != nil {
		return nil, err
	}
	return redis.NewClusterClient(c), nil
}

var errURL = errors.New("redis.url: must be an URL such as redis://user:password@host:6379/0")

// credentials reads the password for each new connection, so that it can change.
func credentials(user, file string) func(context.Context) (string, string, error) {
	return func(context.Context) (string, string, error) {
		text, err := os.ReadFile(file)
		return user, strings.TrimRight(string(text), "\r\n"), err
	}
}

// verify lets t trust the authorities in a file, and looks whether the other files can be read.
func verify(t *tls.Config, o *config.Redis) error {
	if o.PasswordFile != "" {
		if _, err := os.ReadFile(o.PasswordFile); err != nil {
			return fmt.Errorf("redis.passwordFile: %w", err)
		}
	}
	if o.CA == "" {
		return nil
	}
	pem, err := os.ReadFile(o.CA)
	if err != nil {
		return fmt.Errorf("redis.ca: %w", err)
	}
	t.RootCAs = x509.NewCertPool()
	if !t.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("redis.ca: must be a PEM file with certificates, got %q", o.CA)
	}
	return nil
}
