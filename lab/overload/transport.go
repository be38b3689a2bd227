package overload

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// A Transport carries requests to the server and answers back. Its server runs in a separate process, and its
// client in the process of the generator.
type Transport interface {
	// NewServer returns a server of s behind the guard with the given name: none, fixed:N (see [FixedLimit]), or one of
	// [Config.Guards]. It is called once in the server process, after the process has been moved to its control group.
	NewServer(guard string, s *Service) (Server, error)

	// NewClient returns a client of the server at addr, a TCP address. It does not wait for the server.
	NewClient(addr string) (Client, error)
}

// A Server answers requests until its process ends.
type Server interface {
	// Serve answers requests that arrive through l. It returns only if it cannot continue.
	Serve(l net.Listener) error

	// View returns the figures of the guard at this moment. It is called ten times a second, by one goroutine.
	View() View
}

// A Client sends requests to one server. It is safe for concurrent use.
type Client interface {
	// Do sends one request and waits for its answer until the deadline, when it gives up as a client with a timeout does.
	// It returns nil if the answer is what the request asked for, [ErrRefused] if the server refused it, an error with a
	// Timeout method that returns true if the deadline has passed, and any other error for anything else.
	Do(deadline time.Time) error

	// Close gives up the connections, after the last call of Do has returned.
	Close()
}

// ErrRefused says that a server refused a request because of overload.
var ErrRefused = errors.New("overload: refused")

// A Service does the work of the requests. It counts them, and is safe for concurrent use.
type Service struct {
	burner           *Burner
	do               func()
	arrived, started atomic.Int64
	running          atomic.Int64
}

// Arrive counts a request that has reached the server, whether or not its guard will let it in.
func (s *Service) Arrive() { s.arrived.Add(1) }

// Work does what one admitted request asks for. It returns when that is done, even if the client has gone.
func (s *Service) Work() {
	s.started.Add(1)
	s.running.Add(1)
	defer s.running.Add(-1)
	s.do()
}

// transport returns the configured transport, or net/http.
func (c *Config) transport() Transport {
	if c.Transport != nil {
		return c.Transport
	}
	return httpTransport{c}
}

// httpTransport serves with net/http, behind guards that wrap handlers.
type httpTransport struct{ c *Config }

func (t httpTransport) NewClient(addr string) (Client, error) { return NewClient(addr, "/"), nil }

func (t httpTransport) NewServer(name string, s *Service) (Server, error) {
	guard, err := t.c.guard(name)
	if err != nil {
		return nil, err
	}
	work := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.Work()
		answer(w)
	})
	guarded, view, err := guard.Wrap(work)
	if err != nil {
		return nil, err
	}
	return &httpServer{service: s, guarded: guarded, view: view}, nil
}

// httpServer is the outermost handler: it counts requests and passes them on to the guard.
type httpServer struct {
	service *Service
	guarded http.Handler
	view    StatsFunc
}

func (s *httpServer) Serve(l net.Listener) error {
	srv := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	return srv.Serve(l)
}

func (s *httpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.service.Arrive()
	s.guarded.ServeHTTP(w, r)
}

func (s *httpServer) View() View {
	if s.view == nil {
		return View{}
	}
	return s.view()
}

func answer(w http.ResponseWriter) {
	_, _ = w.Write([]byte("ok\n")) // the client may be gone; then no one reads the answer
}
