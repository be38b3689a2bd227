package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
	"github.com/spillway-go/spillway/limiter"
)

// exchange sends a text and returns the answer, or nil if the connection ends without one.
func (p *process) exchange(text string) (*http.Response, string) {
	p.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(p.t, err)
	defer c.Close()
	require.NoError(p.t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, text)
	require.NoError(p.t, err)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(p.t, err)
	return res, string(body)
}

func TestHeadersHaveALimitAndATime(t *testing.T) {
	p := start(t, echo, func(c *config.Config) { c.Listen[0].MaxHeader, c.Listen[0].HeaderTimeout = 8<<10, time.Second })
	res, _ := p.exchange("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: " + strings.Repeat("x", 4<<10) + "\r\n\r\n")
	require.Equal(t, http.StatusOK, res.StatusCode)
	res, _ = p.exchange("GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n")
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, res.StatusCode)
	began := time.Now()
	p.exchange("GET / HTTP/1.1\r\nHost: a\r\n") // and no more
	require.Less(t, time.Since(began), patience/2, "the connection ends")
	require.Equal(t, int64(1), p.backendHits.Load())
}

func TestAClientHasSoManyRequestsAtOnce(t *testing.T) {
	entered, held := make(chan struct{}), make(chan struct{})
	p := start(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-held
		}
	}, func(c *config.Config) {
		c.Client = config.Client{Key: "header", Header: "X-Tenant", MaxConcurrent: 1}
		c.Routes = []config.Route{{Match: "/healthz", Name: "health", Exempt: true}}
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/slow", nil)
		if err != nil {
			return
		}
		r.Header.Set("X-Tenant", "one")
		if res, err := p.client.Do(r); err == nil {
			res.Body.Close()
		}
	}()
	<-entered
	res, _ := p.get(p.url, "X-Tenant", "one")
	refused := res.StatusCode
	res, _ = p.get(p.url, "X-Tenant", "two")
	require.Equal(t, http.StatusOK, res.StatusCode)
	res, _ = p.get(p.url+"/healthz", "X-Tenant", "one")
	require.Equal(t, http.StatusOK, res.StatusCode, "the route is exempt")
	close(held)
	<-ended
	require.Contains(t, []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}, refused)
}

// The address in a PROXY header is that of the client, for the backend and for limits.
func TestTheProxyProtocolNamesTheClient(t *testing.T) {
	p := start(t, echo, func(c *config.Config) {
		c.Listen[0].ProxyProtocol = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		c.Client.Key = "ip"
		c.Routes = []config.Route{{Match: "/", Name: "all", Rate: &config.Rate{Rate: limiter.Per(1, time.Hour), Per: config.PerClient}}}
	})
	for _, c := range []struct {
		address string
		status  int
	}{{"192.0.2.7", 200}, {"192.0.2.7", 429}, {"192.0.2.8", 200}} {
		res, body := p.exchange("PROXY TCP4 " + c.address + " 192.0.2.1 4711 80\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		require.Equal(t, c.status, res.StatusCode)
		if c.status == http.StatusOK {
			require.Contains(t, body, "X-Forwarded-For: "+c.address+"\r\n")
		}
	}
	res, _ := p.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	require.Nil(t, res, "the header is required")
}

func TestTheAccessLogHasEachRequest(t *testing.T) {
	p := start(t, echo, func(c *config.Config) { c.Log.Access = "on" })
	p.get(p.url + "/items/1")
	require.Eventually(t, func() bool {
		return strings.Contains(p.log.String(), "msg=request method=GET host="+strings.TrimPrefix(p.url, "http://")+" path=/items/1") &&
			strings.Contains(p.log.String(), "status=200 bytes=")
	}, patience, time.Millisecond)
}
