package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

const file = `
domain: shop
descriptors:
  - key: remote_address
    rate_limit: {unit: week, requests_per_unit: 4}
`

// A log is a buffer for many goroutines.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs the command without Redis, where it divides the limits by two.
func start(t *testing.T, config string, args ...string) (rls, admin string, log *logged, stop func() error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.yaml")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	ended, begun := make(chan error, 1), make(chan struct{})
	log = new(logged)
	args = append([]string{
		"-config", path, "-redis", "127.0.0.1:1", "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-nodes", "2", "-timeout", "1s",
	}, args...)
	go func() {
		ended <- run(ctx, args, log, func(r, a string) { rls, admin = r, a; close(begun) })
	}()
	stop = func() error { cancel(); return <-ended }
	t.Cleanup(cancel)
	select {
	case <-begun:
	case err := <-ended:
		require.FailNow(t, "it does not begin", "%v", err)
	}
	return rls, "http://" + admin, log, stop
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode, string(text)
}

func get(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return string(text)
}

func TestCommandServesAndEnds(t *testing.T) {
	rls, admin, log, stop := start(t, file)
	conn, err := grpc.NewClient(rls, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	health := healthv1.NewHealthClient(conn)
	for _, service := range []string{"", "envoy.service.ratelimit.v3.RateLimitService"} {
		state, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		require.Equal(t, healthv1.HealthCheckResponse_SERVING, state.GetStatus())
	}
	const body = `{"domain":"shop","descriptors":[{"entries":[{"key":"remote_address","value":"192.0.2.1"}]}]}`
	var answers []int
	for range 3 {
		code, _ := post(t, admin+"/json", body)
		answers = append(answers, code)
	}
	require.Equal(t, []int{200, 200, 429}, answers, "a half of the limit without Redis")
	client := ratelimitv3.NewRateLimitServiceClient(conn)
	ask := &ratelimitv3.RateLimitRequest{Domain: "shop", Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "192.0.2.1"}},
	}}}
	res, err := client.ShouldRateLimit(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, ratelimitv3.RateLimitResponse_OVER_LIMIT, res.GetOverallCode())
	ask.Descriptors[0].Entries[0].Value = strings.Repeat("x", maxMessage)
	_, err = client.ShouldRateLimit(t.Context(), ask)
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "too large")

	code, text := post(t, admin+"/json", `{"domain": 5}`)
	require.Equal(t, 400, code, text)
	code, text = post(t, admin+"/json", `{}`)
	require.Equal(t, 400, code)
	require.Contains(t, text, "domain: must be set")
	code, _ = post(t, admin+"/json", strings.Repeat(" ", maxMessage+1))
	require.Equal(t, 400, code)
	require.Contains(t, get(t, admin+"/metrics"),
		`spillway_envoyrls_descriptors_total{domain="shop",name="envoyrls",result="refused",rule="remote_address"} 2`)
	require.Equal(t, "ok\n", get(t, admin+"/healthz"))
	foreign, err := http.NewRequestWithContext(t.Context(), http.MethodPost, admin+"/json", strings.NewReader(body))
	require.NoError(t, err)
	foreign.Header.Set("Origin", "http://elsewhere.example")
	res2, err := http.DefaultClient.Do(foreign)
	require.NoError(t, err)
	require.NoError(t, res2.Body.Close())
	require.Equal(t, 403, res2.StatusCode, "from a page of another site")
	require.Contains(t, log.String(), "Redis does not answer, the fallback decides")
	require.NoError(t, stop())
	_, err = http.Get(admin + "/healthz")
	require.Error(t, err)
}

func TestCommandRefusesWithoutRedis(t *testing.T) {
	_, admin, _, stop := start(t, file, "-fallback", "refuse")
	code, text := post(t, admin+"/json", `{"domain":"shop","descriptors":[{"entries":[{"key":"remote_address"}]}]}`)
	require.Equal(t, 503, code)
	require.Contains(t, text, "Redis does not answer")
	require.NoError(t, stop())
}

// At the end, running calls are answered: here a call of health that never ends is cut when the time is over.
func TestCommandDrains(t *testing.T) {
	rls, _, _, stop := start(t, file, "-drain", "200ms")
	conn, err := grpc.NewClient(rls, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	watch, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	state, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthv1.HealthCheckResponse_SERVING, state.GetStatus())
	begin := time.Now()
	require.NoError(t, stop())
	require.Less(t, time.Since(begin), 10*time.Second)
	state, err = watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthv1.HealthCheckResponse_NOT_SERVING, state.GetStatus(), "balancers send no more calls")
	_, err = watch.Recv()
	require.Error(t, err)
}

func TestFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	bad := path + ".bad"
	require.NoError(t, os.WriteFile(bad, []byte("domain: shop\nlimit: 5"), 0o600))
	t.Setenv("REDIS_URL", "redis://user:secret@[bad")
	for args, want := range map[string]string{
		"":                                   "-config: must be set, got none",
		"-config F -fallback hold":           `-fallback: must be divide, allow or refuse, got "hold"`,
		"-config F more":                     `arguments: must be none, got ["more"]`,
		"-config F -nodes x":                 `invalid value "x" for flag -nodes`,
		"-config F -lease-from fast":         `invalid value "fast" for flag -lease-from`,
		"-config F -nodes 0 -redis a:1":      "Nodes must",
		"-config F":                          "-redis: must be an address or a URL",
		"-config F -redis a:1 -listen x:y:z": "-listen:",
		"-config F -redis 127.0.0.1:1 -listen 127.0.0.1:0 -admin 1.2.3.4.5": "-admin:",
		"-config F.bad -check":     `line 2: file: has no field "limit"`,
		"-config F.missing -check": "no such file",
	} {
		var log bytes.Buffer
		err := run(t.Context(), strings.Fields(strings.ReplaceAll(args, "F", path)), &log, nil)
		require.ErrorContains(t, err, want, args)
		require.NotContains(t, fmt.Sprint(err, log.String()), "secret")
	}
	var log bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-config", path, "-check"}, &log, nil))
	require.Equal(t, "ok: "+path+"\n", log.String())
	same := path + ".too"
	require.NoError(t, os.WriteFile(same, []byte(file), 0o600))
	require.ErrorContains(t, run(t.Context(), []string{"-config", path, "-config", same, "-check"}, &log, nil), `must be in one file, got "shop"`)
}
