package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/bench/internal/redisserver"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

// A liveRun is one run of a real server.
type liveRun struct {
	seed     uint64
	out      io.Writer
	settle   time.Duration  // how long ended goroutines and files may take to go
	sabotage func(*liveRun) // a fault that a test injects to see that it is found; nil does nothing
	began    time.Time
	addr     string

	gate        *spillway.Gate
	shed        *shedder.Shedder
	concurrency limiter.Limiter
	limit       *exact.Limit
	redis       *redisserver.Server

	started    atomic.Int64 // requests that reached the handlers
	ended      atomic.Int64
	requests   atomic.Int64 // sent by clients
	restarts   atomic.Int64
	reporting  sync.Mutex
	violations violations
}

const (
	placesOfServer = 64
	ratePerSecond  = 400 // of the limit on Redis
)

// violate reports a violation.
func (l *liveRun) violate(where, format string, args ...any) {
	l.reporting.Lock()
	defer l.reporting.Unlock()
	l.violations.add(l.out, time.Since(l.began), l.seed, where, fmt.Sprintf(format, args...))
}

// run plays for d, and compares the process after it with the process before.
func (l *liveRun) run(ctx context.Context, d time.Duration) (report, error) {
	// A rehearsal opens everything that a process keeps for its life, such as the files of the sensors.
	rehearsal := &liveRun{seed: l.seed, out: io.Discard, settle: l.settle}
	if _, err := rehearsal.play(ctx, 200*time.Millisecond); err != nil {
		return report{}, err
	}
	goroutines, files := runtime.NumGoroutine(), openFiles()
	for range 25 { // goroutines of the rehearsal may still be about to end
		time.Sleep(20 * time.Millisecond)
		goroutines, files = min(goroutines, runtime.NumGoroutine()), min(files, openFiles())
	}
	runtime.KeepAlive(rehearsal) // its sensors hold a file until they are collected, as those of l do
	heap, err := l.play(ctx, d)
	if err != nil {
		return report{}, err
	}
	r := report{RealMinutes: time.Since(l.began).Minutes(), Requests: l.requests.Load(), HeapGrowth: growth(heap)}
	l.await("goroutines", goroutines, runtime.NumGoroutine)
	l.await("open files", files, openFiles)
	r.Leaked = int64(max(0, runtime.NumGoroutine()-goroutines) + max(0, openFiles()-files))
	r.Leaked += l.gate.Stats().InFlight
	if why := grown(heap, 8<<20); why != "" {
		l.violate("heap", "%s", why)
	}
	r.Violations = l.violations.n
	return r, nil
}

// play runs the server and its clients for d, and returns the sizes of the heap.
func (l *liveRun) play(ctx context.Context, d time.Duration) (heap []float64, err error) {
	l.began = time.Now()
	quiet()
	if l.redis, err = redisserver.Open(ctx, ""); err != nil {
		return nil, err
	}
	defer l.redis.Close()
	if err := l.build(); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.addr = listener.Addr().String()
	server := &http.Server{
		Handler: httpgate.Handler(l.gate, nil)(l.handler()), ErrorLog: log.New(io.Discard, "", 0),
		ReadHeaderTimeout: time.Second, ReadTimeout: 2 * time.Second, WriteTimeout: 3 * time.Second, IdleTimeout: 2 * time.Second,
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer serving.Wait()
	defer server.Close()

	playing, stop := context.WithTimeout(ctx, d)
	defer stop()
	var players sync.WaitGroup
	for i, c := range clients() {
		for j := range c.n {
			rng := rand.New(rand.NewPCG(l.seed, uint64(1000*i+j)))
			players.Go(func() { c.play(playing, l, rng) })
		}
	}
	players.Go(func() { l.troubles(playing, d) })
	if l.sabotage != nil {
		l.sabotage(l)
	}
	heap = l.watch(playing, d)
	players.Wait()
	l.close()
	return heap, nil
}

func (l *liveRun) build() (err error) {
	if l.limit, err = exact.New(&exact.Options{
		Client: l.redis.Client, Nodes: 1,
		Rules: []limiter.Rule{limiter.Bucket{Rate: limiter.Per(ratePerSecond, time.Second)}},
	}); err != nil {
		return err
	}
	if l.concurrency, err = limiter.New(limiter.Concurrency{Limit: placesOfServer}); err != nil {
		return err
	}
	if l.shed, err = shedder.New(nil); err != nil {
		return err
	}
	l.gate = spillway.New(l.limit, l.concurrency, l.shed)
	return nil
}

// watch checks the server about every second until ctx ends.
func (l *liveRun) watch(ctx context.Context, d time.Duration) (heap []float64) {
	for pause(ctx, min(time.Second, d/20)) {
		if n := l.concurrency.Stats().InFlight; n < 0 || n > placesOfServer {
			l.violate("concurrency", "0 to %d in flight expected, it says %d", placesOfServer, n)
		}
		if n := l.gate.Stats().InFlight; n < 0 || n > placesOfServer {
			l.violate("gate", "0 to %d in flight expected, it says %d", placesOfServer, n)
		}
		s := l.limit.Stats()
		// A restart of Redis forgets the used tokens, and the share of each process begins full.
		most := ratePerSecond * (time.Since(l.began).Seconds() + 2 + 2*float64(l.restarts.Load()))
		if n := float64(s.Admitted - s.Returned); n > most {
			l.violate("cluster limit", "at most %.0f let through expected, it says %.0f", most, n)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap = append(heap, float64(m.HeapAlloc))
	}
	return heap
}

// troubles restarts Redis now and then, about six times a minute.
func (l *liveRun) troubles(ctx context.Context, d time.Duration) {
	rng := rand.New(rand.NewPCG(l.seed, 7))
	for pause(ctx, min(6*time.Second, d/4)) {
		l.restarts.Add(1)
		l.redis.Kill()
		pause(ctx, time.Duration(rng.Int64N(int64(min(4*time.Second, d/6)))))
		if err := l.redis.Start(context.WithoutCancel(ctx)); err != nil {
			l.violate("redis", "%v", err)
			return
		}
	}
}

// close waits until the server is idle, and compares its counts.
func (l *liveRun) close() {
	l.await("requests in flight", 0, func() int { return int(l.gate.Stats().InFlight) })
	s, c := l.gate.Stats(), l.concurrency.Stats()
	for _, x := range []struct {
		what      string
		got, want int64
	}{
		{"gate: admitted", s.Admitted, l.started.Load()},
		{"handlers that have ended", l.ended.Load(), l.started.Load()},
		{"gate: ended", s.Succeeded + s.Failed + s.Dropped + s.Ignored, s.Admitted},
		{"shedder: in flight", l.shed.Stats().InFlight, 0},
		{"concurrency: in flight", c.InFlight, 0},
	} {
		if x.got != x.want {
			l.violate(x.what, "%d expected, got %d", x.want, x.got)
		}
	}
	var refused int64
	for _, r := range s.ByReason {
		refused += r.Count
		fmt.Fprintf(l.out, "%9d refused by %s: %s\n", r.Count, r.Policy, r.Reason)
	}
	if refused != s.Refused {
		l.violate("gate: refusals", "%d expected, the reasons add up to %d", s.Refused, refused)
	}
	k := l.limit.Stats()
	fmt.Fprintf(l.out, "%9d admitted: %d succeeded, %d failed, %d dropped, %d ignored; Redis decided %d, was restarted %d times, gave no answer to %d\n",
		s.Admitted, s.Succeeded, s.Failed, s.Dropped, s.Ignored, k.AdmittedBy[cluster.FromRedis], l.restarts.Load(), k.Unanswered)
}

// await reports a figure that does not return to its initial value, even once garbage is collected.
func (l *liveRun) await(what string, want int, f func() int) {
	for end := time.Now().Add(l.settle); f() > want && time.Now().Before(end); {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	if n := f(); n > want {
		l.violate(what, "%d expected, there are %d", want, n)
	}
}

// openFiles returns how many files and connections the process has open, or 0 where that cannot be known.
func openFiles() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}
