package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
)

// The attacks are what a stranger does on one connection until it breaks, and on how many.
var attacks = map[string]struct {
	connections int
	do          func(ctx context.Context, c net.Conn)
}{
	"rapid reset": {4, func(ctx context.Context, c net.Conn) { // streams that are reset at once, as fast as they are read
		stream := uint32(1)
		for ctx.Err() == nil {
			var f frames
			for range 100 {
				f.add(frameHeaders, endStream|endHeaders, stream, requestBlock)
				f.add(frameReset, 0, stream, []byte{0, 0, 0, 8})
				stream += 2
			}
			if _, err := c.Write(f.Bytes()); err != nil {
				return
			}
		}
	}},
	"continuation": {4, func(ctx context.Context, c net.Conn) { // a header without an end
		var f frames
		f.add(frameHeaders, endStream, 1, requestBlock)
		for ctx.Err() == nil {
			for range 16 {
				f.add(frameContinuation, 0, 1, fieldBlock(140, 110)) // 16 KB
			}
			if _, err := c.Write(f.Bytes()); err != nil {
				return
			}
			f.Reset()
		}
	}},
	"empty continuations": {4, func(ctx context.Context, c net.Conn) {
		var f frames
		f.add(frameHeaders, endStream, 1, requestBlock)
		for ctx.Err() == nil {
			for range 1000 {
				f.add(frameContinuation, 0, 1, nil)
			}
			if _, err := c.Write(f.Bytes()); err != nil {
				return
			}
			f.Reset()
		}
	}},
	"pings": {4, func(ctx context.Context, c net.Conn) { // whose answers nobody reads
		var f frames
		for range 1000 {
			f.add(framePing, 0, 0, make([]byte, 8))
			f.add(frameSettings, 0, 0, nil)
		}
		for ctx.Err() == nil {
			if _, err := c.Write(f.Bytes()); err != nil {
				return
			}
		}
	}},
	"many streams": {4, func(ctx context.Context, c net.Conn) { // more than the limit, and none is ended
		var f frames
		for i := range 2000 {
			f.add(frameHeaders, endHeaders, uint32(2*i+1), requestBlock)
		}
		_, _ = c.Write(f.Bytes())
		<-ctx.Done()
	}},
	"idle": {2000, func(ctx context.Context, _ net.Conn) { <-ctx.Done() }},
	"large headers": {20, func(ctx context.Context, c net.Conn) {
		text := "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 8<<10) + "\r\n\r\n"
		go func() { _, _ = io.Copy(io.Discard, c) }()
		for ctx.Err() == nil {
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
		}
	}},
	"endless header": {20, func(ctx context.Context, c net.Conn) {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n")
		for ctx.Err() == nil {
			if _, err := io.WriteString(c, "X: "+strings.Repeat("x", 1<<10)+"\r\n"); err != nil {
				return
			}
		}
	}},
}

const (
	speaksHTTP2 = "rapid reset, continuation, empty continuations, pings, many streams" // attacks that begin with the preface
	areEnded    = "rapid reset, continuation, endless header"                           // attacks whose connections the server ends
)

// While a stranger floods a listener, the requests of others are answered, and the memory stays bounded. The memory stands in /proc, and
// the stranger has another address of 127.0.0.0/8, so the test is for Linux.
func TestFloodsHarmNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: floods of a second each")
	}
	if race.Enabled {
		t.Skip("SKIPPED: the race detector takes most of the memory that this test measures; run without -race")
	}
	const most = 200 // MB; typical is 20 to 90
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	defer backend.Close()
	for name, a := range attacks {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "spillwayd.yaml")
			require.NoError(t, os.WriteFile(file, []byte("listen: [{address: '127.0.0.1:0'}]\nadmin: {address: 'off'}\nbackend: {urls: ["+
				backend.URL+"]}\nclient: {key: ip, maxConcurrent: 8}\nshedder: {disabled: true}\n"), 0o600)) // a busy machine is not the question
			cmd, address, _ := spawn(t, "-config "+file)
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			ctx, cancel := context.WithCancel(t.Context())
			var (
				strangers sync.WaitGroup
				made      atomic.Int64
			)
			for range a.connections {
				strangers.Go(func() {
					for ctx.Err() == nil {
						flood(ctx, address, strings.Contains(speaksHTTP2, name), a.do)
						made.Add(1)
						select { // the pace of new connections
						case <-time.After(20 * time.Millisecond):
						case <-ctx.Done():
						}
					}
				})
			}
			client := &http.Client{Timeout: patience, Transport: new(http.Transport)}
			defer client.CloseIdleConnections()
			for began, n := time.Now(), 0; time.Since(began) < time.Second || n < 50; n++ {
				res, err := client.Get("http://" + address)
				require.NoError(t, err)
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				require.Equal(t, http.StatusOK, res.StatusCode)
			}
			if strings.Contains(areEnded, name) {
				require.Eventually(t, func() bool { return made.Load() > 0 }, patience, 10*time.Millisecond)
			}
			cancel()
			strangers.Wait()
			mb := residentMB(t, cmd.Process.Pid)
			t.Logf("%d connections ended, %d MB at most", made.Load(), mb)
			require.Less(t, mb, most)
		})
	}
}

// flood plays an attack on a connection from another address than that of the others.
func flood(ctx context.Context, address string, http2 bool, do func(context.Context, net.Conn)) {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	c, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if http2 {
		var f frames
		f.WriteString(preface)
		f.add(frameSettings, 0, 0, nil)
		if _, err := c.Write(f.Bytes()); err != nil {
			return
		}
	}
	do(ctx, c)
}

// residentMB returns the most memory that a process had.
func residentMB(t *testing.T, pid int) (mb int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, line, _ := strings.Cut(string(text), "VmHWM:")
	_, err = fmt.Sscan(line, &mb)
	require.NoError(t, err)
	return mb >> 10
}
