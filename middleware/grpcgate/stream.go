package grpcgate

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/spillway-go/spillway"
)

// detached runs a stream that has a place instead of a permit.
func (s *Server) detached(
	srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler, r spillway.Request, mode StreamMode,
) error {
	who := s.open.holderOf(ss.Context(), &r)
	if !s.open.granted(s.open.Take(who)) {
		return s.refuseStream(ss, errTooManyStreams)
	}
	defer s.open.GiveBack(who)
	permit, err := s.gate.Enter(ss.Context(), r)
	if err != nil {
		return s.refuseStream(ss, err)
	}
	permit.Done(spillway.Ignored)
	if mode == PerMessage {
		return s.perMessage(srv, ss, info.FullMethod, r, handler)
	}
	return s.outward(handler(srv, ss), ss.SetTrailer)
}

// whole runs a stream that is in flight until it ends.
func (s *Server) whole(srv any, ss grpc.ServerStream, method string, r spillway.Request, handler grpc.StreamHandler) error {
	ctx := ss.Context()
	permit, err := s.gate.Enter(ctx, r)
	if err != nil {
		return s.refuseStream(ss, err)
	}
	returned := false
	defer func() {
		if !returned {
			s.unwind(ctx, &permit)
		}
	}()
	w := &watched{ServerStream: ss}
	err = handler(srv, w)
	arrived := permit.Arrived()
	if o, latency := s.endStream(ctx, method, &permit, err, w); o == spillway.Success {
		s.took.observe(ctx, method, arrived, latency)
	}
	returned = true
	return s.outward(err, ss.SetTrailer)
}

// endStream ends a stream, or a message of it, whose handler has returned err. Waits for the client are not part of the
// latency. It returns the outcome that it reported to the policies.
func (s *Server) endStream(
	ctx context.Context, method string, permit *spillway.Permit, err error, w *watched,
) (o spillway.Outcome, latency time.Duration) {
	waited, broken := w.account()
	if !broken { // else it is Ignored
		o = s.outcome(ctx, method, permit, err, waited)
	}
	arrived := permit.Arrived()
	latency = max(time.Since(arrived)-waited, 0)
	permit.DoneAt(arrived.Add(latency), o, 0)
	return o, latency
}

// watched is a ServerStream that notices how long its handler waits for the client, and whether the client broke it: by a
// message that cannot be read, or by stalling until the deadline.
type watched struct {
	grpc.ServerStream

	mu                 sync.Mutex
	waited             time.Duration // blocked in RecvMsg and SendMsg
	receiving, sending bool
	duplex             bool // both at once, so a wait in RecvMsg does not mean that the handler is idle
	broken             bool
}

func (w *watched) RecvMsg(m any) error {
	alive, began := w.begin(&w.receiving), time.Now()
	err := w.ServerStream.RecvMsg(m)
	w.end(&w.receiving, alive, time.Since(began), err)
	return err
}

func (w *watched) SendMsg(m any) error {
	alive, began := w.begin(&w.sending), time.Now()
	err := w.ServerStream.SendMsg(m)
	w.end(&w.sending, alive, time.Since(began), err)
	return err
}

// begin notes that a call in direction at begins, and reports whether the stream is alive.
func (w *watched) begin(at *bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	*at = true
	if w.receiving && w.sending {
		w.duplex = true
	}
	return w.Context().Err() == nil
}

// end notes that a call in direction at has returned err after took. alive says whether the stream was alive when the
// call began. A call that began after the deadline did not break the stream, because the service was late. A goroutine
// that only listens did not break it either.
func (w *watched) end(at *bool, alive bool, took time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*at = false
	listening := at == &w.receiving && w.duplex
	if !listening {
		w.waited += took
	}
	if alive && err != nil && !errors.Is(err, io.EOF) && (!listening || w.Context().Err() == nil) {
		w.broken = true
	}
}

// account returns how long the stream waited for its client, and whether that broke it.
func (w *watched) account() (waited time.Duration, broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waited, w.broken
}

// restart forgets the waits of the stream so far.
func (w *watched) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waited = 0
}

// perMessage runs a stream whose messages each pass the gate.
func (s *Server) perMessage(srv any, ss grpc.ServerStream, method string, r spillway.Request, handler grpc.StreamHandler) error {
	m := &messages{watched: watched{ServerStream: ss}, s: s, method: method, r: r}
	returned := false
	defer func() {
		if !returned {
			m.endMessage(func(p *spillway.Permit) { s.unwind(ss.Context(), p) }, true)
		}
	}()
	began := time.Now()
	err := handler(srv, m)
	m.endMessage(func(p *spillway.Permit) { m.done(p, err) }, true)
	returned = true
	if err == nil { // otherwise the method may not exist
		s.took.observe(ss.Context(), method, began, m.slowest())
	}
	return s.outward(err, ss.SetTrailer)
}

// messages is a ServerStream whose messages pass the gate.
type messages struct {
	watched

	s      *Server
	method string
	r      spillway.Request

	last     sync.Mutex
	permit   spillway.Permit // of the last message
	held     bool            // permit is one
	returned bool            // the handler has returned
	longest  time.Duration   // latency of a message that went well
}

// done ends the message of p, whose handler has returned err.
func (m *messages) done(p *spillway.Permit, err error) {
	o, latency := m.s.endStream(m.Context(), m.method, p, err, &m.watched)
	if o == spillway.Success {
		m.last.Lock()
		m.longest = max(m.longest, latency)
		m.last.Unlock()
	}
}

// slowest returns the latency of the slowest message that went well.
func (m *messages) slowest() time.Duration {
	m.last.Lock()
	defer m.last.Unlock()
	return m.longest
}

// RecvMsg ends the previous message: if the handler asks for the next one, it is done with that message.
func (m *messages) RecvMsg(msg any) error {
	m.endMessage(func(p *spillway.Permit) { m.done(p, nil) }, false)
	if err := m.watched.RecvMsg(msg); err != nil {
		return err
	}
	permit, err := m.s.gate.Enter(m.Context(), m.r)
	if err != nil {
		return m.s.refuseStream(m.ServerStream, err)
	}
	m.restart()
	m.beginMessage(permit)
	return nil
}

func (m *messages) beginMessage(p spillway.Permit) {
	m.last.Lock()
	late := m.returned
	if !late {
		m.permit, m.held = p, true
	}
	m.last.Unlock()
	if late { // a goroutine that the handler left behind has received it
		p.Done(spillway.Ignored)
	}
}

// endMessage ends the previous message, if there is one. If the handler has returned, this is the last message.
func (m *messages) endMessage(how func(*spillway.Permit), returned bool) {
	m.last.Lock()
	permit, held := m.permit, m.held
	m.held = false
	m.returned = m.returned || returned
	m.last.Unlock()
	if held {
		how(&permit)
	}
}
