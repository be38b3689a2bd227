package grpcgate

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// slots counts the streams that have left the gate.
type slots struct {
	limit   int64
	taken   atomic.Int64
	refused stats.Counter
}

// take takes a place, or counts that there was none.
func (s *slots) take() bool {
	if s.tryTake() {
		return true
	}
	s.refused.Add(1)
	return false
}

func (s *slots) tryTake() bool {
	for {
		n := s.taken.Load()
		if n >= s.limit {
			return false
		}
		if s.taken.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *slots) giveBack() { s.taken.Add(-1) }

// perMessage runs a stream each message of which passes the gate.
func (s *Server) perMessage(srv any, ss grpc.ServerStream, method string, r spillway.Request, handler grpc.StreamHandler) error {
	m := &messages{ServerStream: ss, s: s, method: method, r: r}
	returned := false
	defer func() {
		if !returned {
			m.end(func(p *spillway.Permit) { s.unwind(ss.Context(), p) }, true)
		}
	}()
	err := handler(srv, m)
	m.end(func(p *spillway.Permit) { p.Done(s.outcome(ss.Context(), method, p, err)) }, true)
	returned = true
	return err
}

// messages is a ServerStream whose messages pass the gate.
type messages struct {
	grpc.ServerStream
	s      *Server
	method string
	r      spillway.Request

	mu       sync.Mutex
	permit   spillway.Permit // of the last message
	held     bool            // permit is one
	returned bool            // the handler has returned
}

// RecvMsg ends the message before: if the next one is asked for, it has been dealt with.
func (m *messages) RecvMsg(msg any) error {
	m.end(func(p *spillway.Permit) { p.Done(m.s.outcome(m.Context(), m.method, p, nil)) }, false)
	if err := m.ServerStream.RecvMsg(msg); err != nil {
		return err
	}
	permit, err := m.s.gate.Enter(m.Context(), m.r)
	if err != nil {
		return m.s.refuseStream(m.ServerStream, err)
	}
	m.begin(permit)
	return nil
}

func (m *messages) begin(p spillway.Permit) {
	m.mu.Lock()
	late := m.returned
	if !late {
		m.permit, m.held = p, true
	}
	m.mu.Unlock()
	if late { // a goroutine that the handler left behind has received it
		p.Done(spillway.Ignored)
	}
}

// end ends the message before, if there is one. It is the last if the handler has returned.
func (m *messages) end(how func(*spillway.Permit), returned bool) {
	m.mu.Lock()
	permit, held := m.permit, m.held
	m.held = false
	m.returned = m.returned || returned
	m.mu.Unlock()
	if held {
		how(&permit)
	}
}
