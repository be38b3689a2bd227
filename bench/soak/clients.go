package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"
)

const answer = "all is well"

// handler is the service. It has fast, slow, large, memory-hungry and failing routes.
func (l *liveRun) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(path string, f http.HandlerFunc) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			l.started.Add(1)
			defer l.ended.Add(1)
			f(w, r)
		})
	}
	handle("/fast", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
	handle("/slow", func(w http.ResponseWriter, r *http.Request) {
		pause(r.Context(), 30*time.Millisecond)
		_, _ = io.WriteString(w, answer)
	})
	handle("/hang", func(_ http.ResponseWriter, r *http.Request) { pause(r.Context(), 300*time.Millisecond) })
	handle("/upload", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	big := strings.Repeat("0123456789abcdef", 1<<12)
	handle("/big", func(w http.ResponseWriter, _ *http.Request) {
		for range 64 { // 4 MiB, more than the buffers of a connection hold
			if _, err := io.WriteString(w, big); err != nil {
				return
			}
		}
	})
	handle("/garbage", func(w http.ResponseWriter, _ *http.Request) {
		list := make([][]byte, 0, 256)
		for range 256 {
			list = append(list, make([]byte, 8<<10))
		}
		_, _ = fmt.Fprint(w, len(list))
	})
	handle("/panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	return mux
}

// A client is a kind of client and their number.
type client struct {
	n    int
	play func(ctx context.Context, l *liveRun, rng *rand.Rand)
}

func clients() []client {
	return []client{
		{6, innocent(false)},
		{3, innocent(true)},
		{3, hungry},
		{3, raw(slowReader)},
		{3, raw(halfOpen)},
		{3, raw(slowBody)},
		{4, aborting},
	}
}

// innocent clients want short answers, which must be right or a refusal, on connections that they keep or not.
func innocent(churn bool) func(ctx context.Context, l *liveRun, rng *rand.Rand) {
	return func(ctx context.Context, l *liveRun, rng *rand.Rand) {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: churn}, Timeout: 10 * time.Second}
		defer c.CloseIdleConnections()
		for pause(ctx, time.Duration(rng.ExpFloat64()*float64(10*time.Millisecond))) {
			l.requests.Add(1)
			path := []string{"/fast", "/fast", "/slow"}[rng.IntN(3)]
			req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "http://"+l.addr+path, nil)
			if err != nil {
				l.violate("client", "%v", err)
				return
			}
			res, err := c.Do(req)
			if err != nil {
				l.violate("client", "an answer to %s expected, got %v", path, err)
				continue
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			refused := res.StatusCode == http.StatusServiceUnavailable || res.StatusCode == http.StatusTooManyRequests
			if err != nil || !refused && (res.StatusCode != http.StatusOK || string(body) != answer) {
				l.violate("client", "%q expected from %s, got status %d, %d bytes, error %v", answer, path, res.StatusCode, len(body), err)
			}
			if refused && res.Header.Get("Retry-After") == "" {
				l.violate("client", "a Retry-After expected with status %d", res.StatusCode)
			}
		}
	}
}

// hungry clients send requests whose handlers make garbage or panic.
func hungry(ctx context.Context, l *liveRun, rng *rand.Rand) {
	c := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	defer c.CloseIdleConnections()
	for pause(ctx, time.Duration(rng.ExpFloat64()*float64(20*time.Millisecond))) {
		l.requests.Add(1)
		path := []string{"/garbage", "/garbage", "/panic", "/big"}[rng.IntN(4)]
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.addr+path, nil)
		if err != nil {
			return
		}
		if res, err := c.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}
}

// aborting clients go away before the answer.
func aborting(ctx context.Context, l *liveRun, rng *rand.Rand) {
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	for pause(ctx, time.Duration(rng.ExpFloat64()*float64(20*time.Millisecond))) {
		l.requests.Add(1)
		short, cancel := context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(20*time.Millisecond))))
		path := []string{"/slow", "/hang", "/big"}[rng.IntN(3)]
		if req, err := http.NewRequestWithContext(short, http.MethodGet, "http://"+l.addr+path, nil); err == nil {
			if res, err := c.Do(req); err == nil {
				_ = res.Body.Close()
			}
		}
		cancel()
	}
}

// raw clients write bytes on their own connections, without an HTTP client.
func raw(f func(ctx context.Context, conn net.Conn, rng *rand.Rand)) func(ctx context.Context, l *liveRun, rng *rand.Rand) {
	return func(ctx context.Context, l *liveRun, rng *rand.Rand) {
		var d net.Dialer
		for pause(ctx, time.Duration(rng.ExpFloat64()*float64(50*time.Millisecond))) {
			conn, err := d.DialContext(ctx, "tcp", l.addr)
			if err != nil {
				continue
			}
			l.requests.Add(1)
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			f(ctx, conn, rng)
			_ = conn.Close()
		}
	}
}

// slowReader asks for a large answer and reads a little of it.
func slowReader(ctx context.Context, conn net.Conn, rng *rand.Rand) {
	_, _ = io.WriteString(conn, "GET /big HTTP/1.1\r\nHost: soak\r\n\r\n")
	buffer := make([]byte, 4<<10)
	for range rng.IntN(100) {
		if _, err := conn.Read(buffer); err != nil || !pause(ctx, 10*time.Millisecond) {
			return
		}
	}
}

// halfOpen sends the beginning of a header and then nothing.
func halfOpen(ctx context.Context, conn net.Conn, rng *rand.Rand) {
	const header = "POST /upload HTTP/1.1\r\nHost: soak\r\nContent-Length: 1000\r\n\r\n"
	_, _ = io.WriteString(conn, header[:rng.IntN(len(header)+1)])
	if rng.IntN(4) == 0 { // until the server ends it
		_, _ = bufio.NewReader(conn).ReadByte()
		return
	}
	pause(ctx, time.Duration(rng.Int64N(int64(1500*time.Millisecond))))
}

// slowBody sends a body in small pieces, and every other time only a part of it.
func slowBody(ctx context.Context, conn net.Conn, rng *rand.Rand) {
	const size, drop = 3000, 100
	_, _ = fmt.Fprintf(conn, "POST /upload HTTP/1.1\r\nHost: soak\r\nContent-Length: %d\r\n\r\n", size)
	n := size / drop
	if rng.IntN(2) == 0 {
		n = rng.IntN(n)
	}
	text := strings.Repeat("x", drop)
	for range n {
		if _, err := io.WriteString(conn, text); err != nil || !pause(ctx, 10*time.Millisecond) {
			return
		}
	}
	if n == size/drop {
		_, _ = bufio.NewReader(conn).ReadByte()
	}
}
