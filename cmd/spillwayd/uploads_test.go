package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
)

// The ways to break an upload. Each sends one to the address of spillwayd.
var uploads = map[string]func(address string){
	"less than announced": func(address string) { say(address, "Content-Length: 1000\r\n\r\nhello") },
	"broken chunk": func(address string) {
		say(address, "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nno number\r\n")
	},
	"cut off in a chunk": func(address string) { say(address, "Transfer-Encoding: chunked\r\n\r\n50\r\nhello") },
	"too large":          func(address string) { post(address, strings.NewReader(strings.Repeat("x", 2000)), false) },
	"reset stream":       func(address string) { post(address, &breaking{}, true) },
}

// say sends a request with the given end, and leaves.
func say(address, rest string) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+rest)
	_ = c.(*net.TCPConn).CloseWrite()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = c.Read(make([]byte, 1))
}

// drip sends a body byte by byte until it is answered.
func drip(address string) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n0123456789")
	for began := time.Now(); time.Since(began) < patience; {
		_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond)) // the pace of the drops
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if _, err := io.WriteString(c, "."); err != nil {
			return
		}
	}
}

// speaking returns a Transport for HTTP/2 in clear text or for HTTP/1.
func speaking(http2 bool) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	return &http.Transport{Protocols: &protocols}
}

// post sends a body without its length.
func post(address string, body io.Reader, http2 bool) {
	transport := speaking(http2)
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address, io.MultiReader(body))
	if err != nil {
		return
	}
	if res, err := transport.RoundTrip(r); err == nil {
		res.Body.Close()
	}
}

// A breaking is a body that breaks after five bytes.
type breaking struct{ sent bool }

func (b *breaking) Read(p []byte) (int, error) {
	if b.sent {
		return 0, errors.New("broken")
	}
	b.sent = true
	return copy(p, "hello"), nil
}

// A stranger who breaks his uploads ejects no backend, and his requests are no failures.
func TestBrokenUploadsDoNotCountAgainstABackend(t *testing.T) {
	for _, scheme := range []string{"http:", "h2c:"} {
		p := start(t, func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil { // as frameworks do
				w.WriteHeader(http.StatusInternalServerError)
			}
		}, func(c *config.Config) {
			c.MaxBody = 1000
			c.Shedder.Disabled = true // what a busy machine has room for is not the question
			c.Backend.URLs[0] = strings.Replace(c.Backend.URLs[0], "http:", scheme, 1)
			c.Backend.URLs = append(c.Backend.URLs, strings.Replace(c.Backend.URLs[0], "127.0.0.1", "localhost", 1))
		})
		address := strings.TrimPrefix(p.url, "http://")
		var strangers sync.WaitGroup
		for _, upload := range uploads {
			strangers.Go(func() {
				for range 100 {
					upload(address)
				}
			})
		}
		for range 100 { // others see nothing of it
			res, _ := p.get(p.url)
			require.Equal(t, http.StatusOK, res.StatusCode, scheme)
		}
		strangers.Wait()
		p.eventually(`spillway_gate_in_flight{name="default"} 0`)
		_, metrics := p.get(p.admin + "/metrics")
		require.NotContains(t, p.log.String(), "ejected")
		require.Equal(t, 2, strings.Count(metrics, `result="unreached"} 0`), "%s %s", scheme, metrics)
		require.Equal(t, 2, strings.Count(metrics, `result="failed"} 0`), "%s", scheme)
		require.Contains(t, metrics, `spillway_gate_outcomes_total{name="default",outcome="failure"} 0`, scheme)
		require.Contains(t, metrics, `spillway_gate_outcomes_total{name="default",outcome="dropped"} 0`, scheme)
	}
}

// A backend that gives up a slow upload, as many servers do, is not to blame.
func TestSlowUploadsDoNotCountAgainstABackend(t *testing.T) {
	p := start(t, func(_ http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 10)
		if _, err := io.ReadFull(r.Body, buf); err == nil {
			time.Sleep(1200 * time.Millisecond) // the time that the backend gives a client
		}
		panic(http.ErrAbortHandler)
	}, func(c *config.Config) {
		c.Backend.URLs = append(c.Backend.URLs, strings.Replace(c.Backend.URLs[0], "127.0.0.1", "localhost", 1))
	})
	var strangers sync.WaitGroup
	for range 50 {
		strangers.Go(func() { drip(strings.TrimPrefix(p.url, "http://")) })
	}
	strangers.Wait()
	require.NotContains(t, p.log.String(), "ejected")
	_, metrics := p.get(p.admin + "/metrics")
	require.Contains(t, metrics, `spillway_gate_outcomes_total{name="default",outcome="failure"} 0`)

	for range 50 { // without a body the backend is to blame
		res, _ := p.get(p.url)
		require.NotEqual(t, http.StatusOK, res.StatusCode)
	}
	require.Contains(t, p.log.String(), "ejected")
}

// A client that sends its body byte by byte, or stops, holds no place for ever. Others that are long for a reason stay.
func TestSlowBodiesEnd(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stall" { // a backend that takes its time is not the client's fault
			time.Sleep(600 * time.Millisecond)
		}
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n)
	}, func(c *config.Config) { c.Listen[0].BodyTimeout = 300 * time.Millisecond })
	address := strings.TrimPrefix(p.url, "http://")
	began := time.Now()
	var strangers sync.WaitGroup
	for range 20 {
		strangers.Go(func() { drip(address) })
		strangers.Go(func() { post(address, &dripping{}, true) })
	}
	strangers.Wait()
	require.Less(t, time.Since(began), patience/4)
	p.eventually(`spillway_gate_in_flight{name="default"} 0`)

	const size = 8 << 20 // more than the buffers between client and backend
	for _, http2 := range []bool{false, true} {
		p.client.Transport = speaking(http2)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/stall", strings.NewReader(strings.Repeat("x", size)))
		require.NoError(t, err)
		res, body := p.do(r)
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.Equal(t, strconv.Itoa(size), body)
	}
}

// A dripping is a body that never ends.
type dripping struct{}

func (*dripping) Read(p []byte) (int, error) {
	time.Sleep(50 * time.Millisecond) // the pace of the drops
	return copy(p, "."), nil
}

// A client that does not read its answer holds no place for ever, and a quiet stream stays.
func TestSlowReadersEnd(t *testing.T) {
	quiet := make(chan struct{})
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			_, _ = io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			<-quiet
			_, _ = io.WriteString(w, "data: 2\n\n")
			return
		}
		for range 64 << 10 { // 64 MiB, more than all buffers
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	}, func(c *config.Config) { c.Listen[0].AnswerTimeout = 300 * time.Millisecond })
	for _, http2 := range []bool{false, true} {
		client := &http.Client{Transport: speaking(http2)}
		for range 5 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/large", nil)
			require.NoError(t, err)
			res, err := client.Do(r)
			require.NoError(t, err)
			defer res.Body.Close()
			buf := make([]byte, 1)
			_, err = res.Body.Read(buf) // and no more
			require.NoError(t, err)
		}
		p.eventually(`spillway_gate_in_flight{name="default"} 0`)
	}
	for _, http2 := range []bool{false, true} {
		client := &http.Client{Transport: speaking(http2)}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/events", nil)
		require.NoError(t, err)
		res, err := client.Do(r)
		require.NoError(t, err)
		defer res.Body.Close()
		time.AfterFunc(500*time.Millisecond, func() { quiet <- struct{}{} })
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, "data: 1\n\ndata: 2\n\n", string(text))
	}
}
