package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A hostileResult is the service that others get while a stranger attacks.
type hostileResult struct {
	Attack   string  `json:"attack"`
	Answered float64 `json:"answered"` // share of the requests of others that are answered in time
	P99      float64 `json:"p99_ms"`
	Memory   int     `json:"rss_mb"` // of spillwayd, the most so far
}

const stranger = "127.0.0.2" // another address than that of the others

// attacks are what a stranger does, until the context ends.
var attacks = []struct {
	name string
	do   func(ctx context.Context, address string)
}{
	{"calm", func(context.Context, string) {}},
	{"slowloris", func(ctx context.Context, address string) { // 1000 headers, byte by byte
		each(ctx, 1000, func() { drip(ctx, address, "GET / HTTP/1.1\r\nHost: a\r\nX: ") })
	}},
	{"slow bodies", func(ctx context.Context, address string) { // 1000 bodies, byte by byte
		each(ctx, 1000, func() { drip(ctx, address, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n") })
	}},
	{"idle", func(ctx context.Context, address string) { // 10 000 connections that send nothing
		each(ctx, 10_000, func() {
			if c := dial(ctx, address); c != nil {
				defer c.Close()
				<-ctx.Done()
			}
		})
	}},
	{"headers", func(ctx context.Context, address string) { // 1000 requests per second with headers of 8 KB
		text := "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 8<<10) + "\r\n\r\n"
		each(ctx, 20, func() {
			c := dial(ctx, address)
			if c == nil {
				return
			}
			defer c.Close()
			go func() { _, _ = io.Copy(io.Discard, c) }()
			for ctx.Err() == nil {
				if _, err := io.WriteString(c, text); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}},
	{"rapid reset", func(ctx context.Context, address string) { // streams of HTTP/2 that are reset at once, as fast as they are read
		each(ctx, 4, func() {
			var f frames
			stream := uint32(1)
			pour(ctx, address, func() []byte {
				f.Reset()
				for range 100 {
					f.add(frameHeaders, endStream|endHeaders, stream, request)
					f.add(frameReset, 0, stream, []byte{0, 0, 0, cancelled})
					stream += 2
				}
				return f.Bytes()
			})
		})
	}},
	{"continuation", func(ctx context.Context, address string) { // headers of HTTP/2 without an end
		each(ctx, 4, func() {
			var f frames
			f.add(frameHeaders, endStream, 1, request)
			pour(ctx, address, func() []byte {
				out := bytes.Clone(f.Bytes())
				f.Reset()
				f.add(frameContinuation, 0, 1, fields)
				return out
			})
		})
	}},
}

var from = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(stranger)}}

// each runs n copies of f again and again until ctx ends.
func each(ctx context.Context, n int, f func()) {
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			for ctx.Err() == nil {
				f()
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	calls.Wait()
}

// dial connects from the address of the stranger, or returns nil.
func dial(ctx context.Context, address string) net.Conn {
	c, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	return c
}

// drip sends a text, and then a byte every half second.
func drip(ctx context.Context, address, text string) {
	c := dial(ctx, address)
	if c == nil {
		return
	}
	defer c.Close()
	for ctx.Err() == nil {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
		text = "x"
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// measureHostile fills in what others get during each attack: they ask for half of the capacity of a pool.
func (r *report) measureHostile(daemon, dir string, measured time.Duration) error {
	b, err := spawnSelf("pool")
	if err != nil {
		return err
	}
	defer b.end()
	file := filepath.Join(dir, "hostile.yaml")
	text := fmt.Sprintf("listen: [{address: '127.0.0.1:0', bodyTimeout: 2s}]\nadmin: {address: 'off'}\nbackend: {urls: [%s]}\n"+
		"client: {key: ip, maxConcurrent: 8}\n", b.url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	proxy, err := spawn(daemon, "-config", file)
	if err != nil {
		return err
	}
	defer proxy.end()
	for _, a := range attacks {
		ctx, cancel := context.WithCancel(context.Background())
		var under sync.WaitGroup
		under.Go(func() { a.do(ctx, strings.TrimPrefix(proxy.url, "http://")) })
		time.Sleep(time.Second) // until the attack is there
		got := hostileResult{Attack: a.name}
		got.Answered, got.P99 = others(proxy.url, measured)
		cancel()
		under.Wait()
		if got.Memory, err = memory(proxy.cmd.Process.Pid); err != nil {
			return err
		}
		fmt.Printf("hostile %-12s others: answered %.3f p99 %.0f ms, memory of spillwayd %d MB\n", got.Attack, got.Answered, got.P99, got.Memory)
		r.Hostile = append(r.Hostile, got)
	}
	return nil
}

// others sends half of the capacity in even steps.
func others(url string, measured time.Duration) (answered, p99 float64) {
	load := 0.5 * workers / work.Seconds()
	var (
		calls sync.WaitGroup
		mu    sync.Mutex
		took  []float64
		sent  atomic.Int64
	)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	for began := time.Now(); time.Since(began) < measured; time.Sleep(2 * time.Millisecond) {
		for float64(sent.Load()) < load*time.Since(began).Seconds() {
			sent.Add(1)
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				at := time.Now()
				if status, err := get(ctx, client, url); err == nil && status == http.StatusOK {
					mu.Lock()
					defer mu.Unlock()
					took = append(took, float64(time.Since(at).Microseconds())/1000)
				}
			})
		}
	}
	calls.Wait()
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return float64(len(took)) / float64(sent.Load()), took[len(took)*99/100]
}

// memory returns the most resident memory of a process, in MB.
func memory(pid int) (mb int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, line, _ := strings.Cut(string(text), "VmHWM:")
	_, err = fmt.Sscan(line, &mb)
	return mb >> 10, err
}
