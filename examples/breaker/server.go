package main

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// behaviour is a server's reaction to a request.
type behaviour int32

const (
	well    behaviour = iota // answers after a few milliseconds
	failing                  // answers 500
	hanging                  // does not answer
)

// A server is one real HTTP server on the loopback, whose behaviour can be changed while it runs.
type server struct {
	does   atomic.Int32
	broken atomic.Int64 // requests that came while it was in trouble
	addr   string
	http   http.Server
	quit   chan struct{}
}

func startServer() (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{addr: listener.Addr().String(), quit: make(chan struct{})}
	s.http.Handler = http.HandlerFunc(s.serve)
	s.http.ReadHeaderTimeout = time.Second
	go s.http.Serve(listener) //nolint:errcheck // it ends when the server is closed
	return s, nil
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	does := behaviour(s.does.Load())
	if does != well {
		s.broken.Add(1)
	}
	switch does {
	case failing:
		w.WriteHeader(http.StatusInternalServerError)
	case hanging:
		select {
		case <-r.Context().Done(): // the client has given up
		case <-s.quit:
		}
	default:
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *server) close() {
	close(s.quit)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.http.Shutdown(ctx)
	_ = s.http.Close()
}
