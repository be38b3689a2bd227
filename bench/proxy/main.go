// Proxy measures spillwayd: what a request costs in it, and what it keeps of the capacity of backends in other processes.
//
//	go run ./bench/proxy -json proxy.json
//	go run ./bench/proxy -backends pool,python -loads 2,5,10 -seconds 10 -requests 200000
//
// The cost is the CPU time of the proxy's process per request. It is measured for spillwayd, for a refusal of spillwayd, and for a plain
// httputil.ReverseProxy. That one has the same tuned transport, X-Forwarded fields and timeouts for headers and idle connections. All three
// meet the same load in 20 turns, after 5000 requests each: 32 connections, answers of 1 KiB. The figures are medians, and the ratios are
// medians of the ratios within a turn.
//
// A backend has processes of its own. "pool" has four workers that take 20 ms for a request. "python" is the same in Python, with
// threads, and "php" the same with php-fpm behind nginx. They answer in order and do not notice clients that have left. "cpu" needs a
// millisecond of a quota of 0.1 CPUs. Clients give up after 500 ms, and goodput is the share of the capacity that is answered in
// time, without the first three seconds. 32 clients that wait for their answers measure the capacity before.
//
// After the event "halved" a second is left out, and the capacity is half of the one before. After "killed" the second after the
// proxy listens again is left out.
//
// The backend "hostile" is a pool behind spillwayd while a stranger attacks it: what others get, and the CPUs and the memory of
// spillwayd. Each client has a rate of 20 requests per second. The attacks with frames of HTTP/2 are as fast as spillwayd reads.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A report is what -json writes.
type report struct {
	Results      []result        `json:"results"`
	ProxyCPU     float64         `json:"proxy_cpu_us"`
	Hostile      []hostileResult `json:"hostile,omitempty"`
	PlainCPU     float64         `json:"plain_proxy_cpu_us"`
	RefusalCPU   float64         `json:"refusal_cpu_us"`
	ProxyRatio   float64         `json:"proxy_ratio"`
	RefusalRatio float64         `json:"refusal_ratio"`
}

// A result is one guard in front of one backend.
type result struct {
	Guard   string  `json:"guard"`
	Backend string  `json:"backend"`
	Load    float64 `json:"load"`
	Event   string  `json:"event,omitempty"`
	Goodput float64 `json:"goodput"`
	P99     float64 `json:"p99_ms"`
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "role" {
		play(os.Args[2], os.Args[3:])
		return
	}
	requests := flag.Int("requests", 60_000, "requests of each measurement of the cost; 0 for none")
	backends := flag.String("backends", "pool,python", "backends to overload, with commas between them: pool, python, php, cpu; empty for none")
	guards := flag.String("guards", "none,spillwayd", "what stands before the backends: none, spillwayd, spillwayd-slo (400 ms), and nginx with limit_req:N or limit_conn:N")
	event := flag.String("event", "", "what happens at half of the measured time: halved (the backend cpu loses half of its CPU), or killed (the proxy, by SIGKILL)")
	loads := flag.String("loads", "5", "loads as multiples of the capacity")
	seconds := flag.Float64("seconds", 5, "seconds of each measured load")
	calm := flag.Duration("calm", 0, "time with half of the capacity before the load; without it the guard starts cold, with the first request of the load")
	only := flag.String("attacks", "", "attacks of the backend hostile, with commas between them; empty for all")
	apart := flag.Bool("apart", false, "the stranger gets only the CPU that nobody else wants (nice 19), as if it had a machine of its own")
	out := flag.String("json", "", "file for the figures")
	flag.Parse()
	if err := run(*requests, split(*backends), split(*guards), split(*loads), split(*only), *apart, *event, *calm, *seconds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

func run(requests int, backends, guards, loads, attacks []string, apart bool, event string, calm time.Duration, seconds float64, out string) error {
	dir, err := os.MkdirTemp("", "spillway-proxy")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	daemon := filepath.Join(dir, "spillwayd")
	build := exec.Command("go", "build", "-o", daemon, "github.com/spillway-go/spillway/cmd/spillwayd")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("spillwayd cannot be built: %w\n%s", err, text)
	}
	if err := os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "state")); err != nil { // where spillwayd keeps what it has learnt
		return err
	}
	var r report
	if requests > 0 {
		if err := r.measureCost(daemon, dir, requests); err != nil {
			return err
		}
		fmt.Printf("CPU per request: plain proxy %.1f µs, spillwayd %.1f µs (%.2f x), refusal %.1f µs (%.2f x)\n",
			r.PlainCPU, r.ProxyCPU, r.ProxyRatio, r.RefusalCPU, r.RefusalRatio)
	}
	for _, backend := range backends {
		if err := r.overload(daemon, dir, backend, guards, loads, attacks, apart, event, calm, seconds); err != nil {
			return err
		}
	}
	if out == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o600)
}

// overload plays all cells of one backend.
func (r *report) overload(daemon, dir, backend string, guards, loads, attacks []string, apart bool, event string, calm time.Duration, seconds float64) error {
	if backend == "hostile" {
		return r.measureHostile(daemon, dir, attacks, apart, time.Duration(seconds*float64(time.Second)))
	}
	capacity, err := capacityOfBackend(backend, dir)
	if errors.Is(err, errSkip) {
		fmt.Printf("%s: %v\n", backend, err)
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s: %.0f requests per second\n", backend, capacity)
	for _, text := range loads {
		load, err := strconv.ParseFloat(text, 64)
		if err != nil || !(load > 0) {
			return fmt.Errorf("-loads: must be positive numbers, got %q", text)
		}
		for _, guard := range guards {
			c := cell{guard: guard, backend: backend, load: load, event: event, calm: calm, measured: time.Duration(seconds * float64(time.Second))}
			got, err := c.measure(daemon, dir, capacity)
			if err != nil {
				return err
			}
			fmt.Printf("%-14s %-8s load %4.1f %-6s goodput %.2f p99 %.0f ms\n", guard, backend, load, event, got.Goodput, got.P99)
			r.Results = append(r.Results, got)
		}
	}
	return nil
}
