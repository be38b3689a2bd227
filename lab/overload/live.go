package overload

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/console"
	"github.com/spillway-go/spillway/stats"
)

// checkLive reports whether a live page can be served at addr. An empty addr means none.
func checkLive(addr string) error {
	if addr == "" {
		return nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("overload: -live: %w", err)
	}
	return l.Close()
}

// live serves the page and the metrics of the guard, in the server process, outside the guard. Where the guard has nothing to show, it does
// nothing.
func (c *Config) live(o childOrders, source stats.Source) (stop func(), err error) {
	if o.Live == "" || source == nil {
		return func() {}, nil
	}
	l, err := listen(o.Live)
	if err != nil {
		return nil, fmt.Errorf("overload: -live: %w", err)
	}
	sources := map[string]stats.Source{o.Guard: source}
	page := console.New(sources, &console.Options{Title: "Overload, behind " + o.Guard})
	mux := http.NewServeMux()
	mux.Handle("/", page)
	if c.Metrics != nil {
		mux.Handle("/metrics", c.Metrics(sources))
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // it ends with the process, which ends with its parent
	return func() {
		_ = server.Close()
		_ = page.Close()
	}, nil
}

// listen waits a moment for the server before this one to be gone.
func listen(addr string) (l net.Listener, err error) {
	for range 20 {
		if l, err = net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, err
}
