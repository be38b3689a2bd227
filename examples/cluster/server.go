package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster/lease"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// window is the resolution of the counts.
const window = 100 * time.Millisecond

// serverOrders are the orders of a server.
type serverOrders struct {
	Redis string
	Name  string // name of the limit
	Rate  int    // of all servers together, per second
}

// A tally is how many requests a server let through in one window of the wall clock, which all servers share here.
type tally struct {
	Window   int64
	Admitted int
}

// protect puts the shared limit of all servers in front of a handler.
func protect(client redis.UniversalClient, name string, rate int, next http.Handler) (http.Handler, *lease.Limit, error) {
	quota, err := lease.New(&lease.Options{
		Client:    client,
		Name:      name,
		IgnoreKey: true,                                                                   // one limit for all clients
		Rule:      limiter.Bucket{Rate: limiter.Per(rate, time.Second), Burst: rate / 20}, // 50 ms worth
		Nodes:     len(demands),
	})
	if err != nil {
		return nil, nil, err
	}
	return httpgate.Handler(spillway.New(quota), nil)(next), quota, nil
}

// serve is a server. It prints its address, then every 100 ms how much it let through, until its parent ends.
func serve() error {
	var o serverOrders
	if err := orders(&o); err != nil {
		return err
	}
	redis.SetLogger(quiet{}) // the run takes Redis away on purpose
	client := redis.NewClient(&redis.Options{Addr: o.Redis, MaxRetries: -1})
	defer client.Close()
	counts := &counter{by: map[int64]int{}}
	handler, quota, err := protect(client, o.Name, o.Rate, counts)
	if err != nil {
		return err
	}
	defer quota.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(l) }()
	go func() { untilParentEnds(); failed <- nil }()
	for {
		select {
		case err := <-failed:
			return errors.Join(err, counts.tell(os.Stdout, math.MaxInt64))
		case <-time.After(window / 2):
			if err := counts.tell(os.Stdout, windowOf(time.Now())); err != nil {
				return err
			}
		}
	}
}

// windowOf returns the window that holds a time.
func windowOf(t time.Time) int64 { return t.UnixNano() / int64(window) }

// quiet is a logger that drops everything.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// A counter is the handler that the limit protects: it counts when it is called.
type counter struct {
	mu sync.Mutex
	by map[int64]int
}

func (c *counter) ServeHTTP(http.ResponseWriter, *http.Request) {
	w := windowOf(time.Now())
	c.mu.Lock()
	c.by[w]++
	c.mu.Unlock()
}

// tell writes the counts of the windows before now, once.
func (c *counter) tell(out io.Writer, now int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w, n := range c.by {
		if w >= now {
			continue
		}
		if err := json.NewEncoder(out).Encode(tally{w, n}); err != nil {
			return err
		}
		delete(c.by, w)
	}
	return nil
}
