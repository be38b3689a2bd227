package grpcgate

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/deadline"
	"github.com/spillway-go/spillway/internal/places"
)

// Stream is a grpc.StreamClientInterceptor. The stream gives back its permit or place when RecvMsg returns an error
// (such as io.EOF) or the only answer, when another method fails, and when ctx ends, even if no goroutine reads.
func (c *Client) Stream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	r := c.describe(ctx, conn, method)
	who := c.open.Of(r.Key)
	if !c.open.granted(c.open.Check(who)) {
		return nil, c.refusal(errTooManyStreams)
	}
	l, err := c.listener(conn, r.Priority)
	if err != nil {
		return nil, err
	}
	permit, err := c.gate.Enter(ctx, r)
	if err != nil {
		return nil, c.refusal(err)
	}
	e := &exchange{c: c, ctx: ctx, method: method, r: r, who: who, mode: c.o.Stream(method), single: !desc.ServerStreams}
	e.permit, e.held = permit, true
	e.turn.begin(permit.Arrived(), true)
	defer e.unwind()
	inner, err := streamer(ctx, desc, conn, method, opts...)
	if err != nil {
		e.end(err)
		return nil, err
	}
	s := &clientStream{ClientStream: inner, e: e, asksOnce: !desc.ClientStreams, listener: l}
	e.opened(s)
	return s, nil
}

// An exchange is one stream of a client, from its admission to its end.
type exchange struct {
	c      *Client
	ctx    context.Context //nolint:containedctx // a stream lives as long as its context
	method string
	r      spillway.Request
	who    places.Holder
	mode   StreamMode
	single bool // there is one answer
	busy   atomic.Int32
	open   bool // the stream has been handed to its caller

	mu       sync.Mutex
	permit   spillway.Permit // of the stream, or of the last message
	held     bool            // permit is one
	detached bool            // it holds a place
	ended    bool
	turn     turn
}

// opened lets the exchange notice that its caller gives up.
func (e *exchange) opened(s *clientStream) {
	e.open = true
	e.leave(true, false)
	s.stop = context.AfterFunc(e.ctx, e.contextEnded)
	s.cleanup = runtime.AddCleanup(s, (*exchange).forgotten, e)
}

// enter notes that a method of the stream begins. A running method notices the end of the context itself.
func (e *exchange) enter(sending bool) {
	now := time.Now()
	e.busy.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turn.begin(now, sending)
}

// leave notes that a method of the stream ends. whole says that the server now has everything it needs.
func (e *exchange) leave(sending, whole bool) {
	now, ended := time.Now(), e.ctx.Err() != nil
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turn.finish(now, sending, ended)
	e.turn.whole = e.turn.whole || whole
}

// unwind ends a stream whose streamer panicked or exited the goroutine.
func (e *exchange) unwind() {
	if !e.open {
		e.finish(func(p *spillway.Permit) { p.Done(spillway.Failure) })
	}
}

// end ends the stream with err, which is nil after a success.
func (e *exchange) end(err error) {
	e.finish(func(p *spillway.Permit) { e.judge(p, err) })
}

// judge ends p, the permit of the stream or of a message, with err. The latency is the time that the server had.
func (e *exchange) judge(p *spillway.Permit, err error) {
	now := time.Now()
	e.mu.Lock()
	latency, owed := e.turn.spent(now), e.turn.owed(now)
	e.mu.Unlock()
	arrived := p.Arrived()
	given := allotted(e.ctx, arrived)
	if given != deadline.None { // the server has no time after the deadline, even if the end is noticed late
		given = owed - max(0, now.Sub(arrived)-given)
	}
	o := e.c.outcome(e.ctx, e.method, err, given)
	if wish := wish(o, err); wish > 0 {
		p.DoneAt(time.Time{}, o, wish)
		return
	}
	p.DoneAt(arrived.Add(latency), o, 0)
	if o == spillway.Success {
		e.c.took.observe(e.ctx, e.method, arrived, latency)
	}
}

// finish gives back everything that the stream holds. Only the first call counts.
func (e *exchange) finish(how func(*spillway.Permit)) bool {
	e.mu.Lock()
	first, detached := !e.ended, e.detached
	e.ended = true
	permit, held := e.takePermit()
	e.mu.Unlock()
	if first && detached {
		e.c.open.GiveBack(e.who)
	}
	if held {
		how(&permit)
	}
	return first
}

// takePermit returns the permit, if there is one. It must be called with mu held.
func (e *exchange) takePermit() (spillway.Permit, bool) {
	held := e.held
	e.held = false
	return e.permit, held
}

// answered handles a sign of life of the server: a message or the header.
func (e *exchange) answered(message bool) {
	if permit, ok := e.release(message); ok {
		e.judge(&permit, nil)
	}
}

// release returns the permit that a sign of life ends, if there is one.
func (e *exchange) release(message bool) (spillway.Permit, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended || e.mode == WholeStream {
		return spillway.Permit{}, false
	}
	if !e.detached {
		if e.c.open.Take(e.who) != places.Granted {
			return spillway.Permit{}, false
		}
		e.detached = true
		return e.takePermit()
	}
	if !message {
		return spillway.Permit{}, false
	}
	return e.takePermit()
}

// send asks the gate about a message, if each message has to pass the gate.
func (e *exchange) send() error {
	if e.mode != PerMessage {
		return nil
	}
	permit, err := e.c.gate.Enter(e.ctx, e.r)
	if err != nil {
		return e.c.refusal(err)
	}
	e.mu.Lock()
	before, held := e.takePermit()
	if e.ended {
		before, held = permit, true
	} else {
		e.permit, e.held = permit, true
		e.turn.restart(permit.Arrived(), !e.single)
	}
	e.mu.Unlock()
	if held { // a message without its own answer says nothing
		before.Done(spillway.Ignored)
	}
	return nil
}

// contextEnded ends a stream that has no reader when its context ends: its caller has given up. A caller inside a
// method of the stream notices the end itself.
func (e *exchange) contextEnded() {
	if e.busy.Load() == 0 {
		e.giveUp()
	}
}

// giveUp ends a stream whose context has ended. The server may be at fault if it was not accepting a message at the
// deadline.
func (e *exchange) giveUp() {
	e.mu.Lock()
	stuck := e.turn.stuck > 0
	e.mu.Unlock()
	if err := e.ctx.Err(); stuck && errors.Is(err, context.DeadlineExceeded) {
		e.end(err)
		return
	}
	e.finish(func(p *spillway.Permit) { p.Done(spillway.Ignored) })
}

// forgotten ends a stream that was not read to the end and not given up, when the garbage collector finds it.
func (e *exchange) forgotten() {
	if e.finish(func(p *spillway.Permit) { p.Done(spillway.Ignored) }) {
		e.c.leaked.Add(1)
	}
}

// A clientStream reports to its exchange. It hides no method: a ClientStream has no optional ones.
type clientStream struct {
	grpc.ClientStream
	e       *exchange // must not refer to the stream, because the stream would then never be garbage
	stop    func() bool
	cleanup runtime.Cleanup

	listener listener
	asksOnce bool // the caller sends one message, and then the server has everything it needs
}

func (s *clientStream) RecvMsg(m any) error {
	s.e.enter(false)
	defer s.idle(false, false)
	err := s.ClientStream.RecvMsg(m)
	switch {
	case errors.Is(err, io.EOF):
		s.ended(nil)
	case err != nil:
		s.ended(err)
	case s.e.single:
		s.ended(nil)
	default:
		s.e.answered(true)
	}
	return err
}

// SendMsg does not end the stream with io.EOF, which says that RecvMsg knows the reason.
func (s *clientStream) SendMsg(m any) error {
	s.e.enter(true)
	defer s.idle(true, s.asksOnce)
	if err := s.e.send(); err != nil {
		return err
	}
	err := s.ClientStream.SendMsg(m)
	if err != nil && !errors.Is(err, io.EOF) {
		s.end(err)
	}
	return err
}

// CloseSend tells the server that there are no more messages.
func (s *clientStream) CloseSend() error {
	s.e.enter(true)
	defer s.idle(true, true)
	return s.ClientStream.CloseSend()
}

func (s *clientStream) Header() (metadata.MD, error) {
	s.e.enter(false)
	defer s.idle(false, false)
	md, err := s.ClientStream.Header()
	switch {
	case err != nil:
		s.end(err)
	case md != nil: // it is nil if the stream has ended without a header
		s.e.answered(false)
	}
	return md, err
}

// ended handles the end of the stream, with which its trailer has come.
func (s *clientStream) ended(err error) {
	if s.listener.host != nil {
		o, trailer := DefaultClientOutcome(err), s.ClientStream.Trailer()
		s.listener.heard(&trailer, o, wish(o, err))
		s.listener.host = nil // RecvMsg may be called again
	}
	s.end(err)
}

func (s *clientStream) end(err error) {
	s.stop()
	s.cleanup.Stop()
	s.e.end(err)
}

// idle says that a method of the stream is about to return. If the context has ended meanwhile, it ends the stream.
func (s *clientStream) idle(sending, whole bool) {
	s.e.leave(sending, whole)
	if s.e.busy.Add(-1) == 0 && s.e.ctx.Err() != nil {
		s.e.giveUp()
	}
}
