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
	CPU      float64 `json:"cpu"`    // CPUs that spillwayd used
}

const (
	calm    = "calm" // no attack
	clients = 20     // others, each with an address
)

// attack plays an attack, as a process of its own, until it is ended.
func attack(name, address string) {
	fmt.Println("listening on nothing")
	for i, a := range attacks {
		if a.name == name {
			from.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i))} // the last stranger may be shut out
			a.do(context.Background(), address)
		}
	}
	select {}
}

// attacks are what a stranger does, until the context ends.
var attacks = []struct {
	name string
	do   func(ctx context.Context, address string)
}{
	{calm, func(ctx context.Context, _ string) { <-ctx.Done() }},
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

// from connects from the address of the stranger.
var from net.Dialer

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

// measureHostile fills in what others get during each attack: they ask for half of the capacity of a pool. If apart is true, the
// stranger gets the CPU that nobody else wants, as if it had a machine of its own.
func (r *report) measureHostile(daemon, dir string, only []string, apart bool, measured time.Duration) error {
	b, err := spawnSelf("pool")
	if err != nil {
		return err
	}
	defer b.end()
	file := filepath.Join(dir, "hostile.yaml")
	text := fmt.Sprintf("listen: [{address: '127.0.0.1:0', bodyTimeout: 2s}]\nadmin: {address: 'off'}\nbackend: {urls: [%s]}\n"+
		"client: {key: ip, maxConcurrent: 8}\nroutes: [{match: /, name: all, rate: {rate: 20/s, burst: 20, per: client}}]\n", b.url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	proxy, err := spawn(daemon, "-config", file)
	if err != nil {
		return err
	}
	defer proxy.end()
	for _, a := range attacks {
		if len(only) > 0 && !slices.Contains(only, a.name) {
			continue
		}
		got, err := measureAttack(a.name, proxy, apart, measured)
		if err != nil {
			return err
		}
		fmt.Printf("hostile %-12s others: answered %.3f p99 %.0f ms, spillwayd: %.2f CPUs, %d MB\n", got.Attack, got.Answered, got.P99, got.CPU, got.Memory)
		r.Hostile = append(r.Hostile, got)
	}
	return nil
}

// measureAttack measures one attack.
func measureAttack(name string, proxy *child, apart bool, measured time.Duration) (got hostileResult, err error) {
	self, err := os.Executable()
	if err != nil {
		return got, err
	}
	command := []string{self, "role", "attack", name, strings.TrimPrefix(proxy.url, "http://")}
	if apart {
		command = append([]string{"nice", "-n", "19"}, command...)
	}
	attacker, err := spawn(command[0], command[1:]...)
	if err != nil {
		return got, err
	}
	defer attacker.end()
	time.Sleep(time.Second) // until the attack is there
	before, err := proxy.cpu()
	if err != nil {
		return got, err
	}
	at := time.Now()
	got.Attack = name
	got.Answered, got.P99 = others(proxy.url, measured)
	after, err := proxy.cpu()
	got.CPU = (after - before).Seconds() / time.Since(at).Seconds()
	if err == nil {
		got.Memory, err = memory(proxy.cmd.Process.Pid)
	}
	return got, err
}

// others sends half of the capacity in even steps, from several addresses.
func others(url string, measured time.Duration) (answered, p99 float64) {
	load := 0.5 * workers / work.Seconds()
	var (
		calls sync.WaitGroup
		mu    sync.Mutex
		took  []float64
		sent  atomic.Int64
	)
	var each []*http.Client
	for i := range clients {
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i))}}
		each = append(each, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100, DialContext: from.DialContext}})
	}
	for began := time.Now(); time.Since(began) < measured; time.Sleep(2 * time.Millisecond) {
		for float64(sent.Load()) < load*time.Since(began).Seconds() {
			client := each[sent.Add(1)%clients]
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
