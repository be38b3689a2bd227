package grpcgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/orca"
	"github.com/spillway-go/spillway/internal/overload"
	"github.com/spillway-go/spillway/stats"
)

// A Server gates the calls of a gRPC server. It is made by [NewServer], and safe for concurrent use. Its methods Unary,
// Stream and Tap are passed to grpc.NewServer.
type Server struct {
	gate            *spillway.Gate
	load            *orca.Reporter     // nil if it reports nothing
	tells           *overload.Reporter // nil if it tells clients nothing
	o               Options            // no field is nil
	took            latencies
	open            *streamPlaces // of streams that have left the gate
	openExempt      *streamPlaces // of streams that passed by it
	capacity, quota *answers
	late            *answer
	exempt, tapped  stats.Counter
}

// NewServer returns a Server in front of gate. If o is nil, it has the defaults. The error names the invalid argument:
// a nil gate, or a field of o and its value.
func NewServer(gate *spillway.Gate, o *Options) (*Server, error) {
	if gate == nil {
		return nil, errors.New("grpcgate: gate: must be a Gate, got nil")
	}
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	load, err := orca.New(opts.LoadReport, gate.Metrics)
	if err != nil {
		return nil, fmt.Errorf("grpcgate: %w", err)
	}
	s := &Server{
		gate:       gate,
		load:       load,
		o:          opts,
		took:       newLatencies(opts.MinBudget),
		open:       newPlaces(opts.MaxStreams),
		openExempt: newPlaces(opts.MaxStreams),
		capacity:   newAnswers(opts.Code, textCapacity),
		quota:      newAnswers(codes.ResourceExhausted, textQuota),
		late:       tooLate(),
	}
	if opts.TellClients {
		s.tells = overload.NewReporter(gate.Metrics)
	}
	return s, nil
}

// Stats is a snapshot of the counts of a [Server] or [Client] that its [spillway.Gate] does not have.
type Stats struct {
	Streams        int64 // streams that have left the gate and are open now
	StreamsRefused int64 // streams refused because MaxStreams were open, exempt ones included; the Gate did not see them

	// Of a Server.
	Exempt        int64 // calls that bypassed the gate
	ExemptStreams int64 // streams that bypassed the gate and are open now
	Tapped        int64 // calls refused before their message was read; the Gate counts those that it refused as well

	// HeldBack counts the calls that a Client did not make because the server asked it to (ClientOptions.ListenTo), and
	// Throttled those because the server refused many. The Gate did not see them.
	HeldBack, Throttled int64

	// Leaked counts the streams of a Client that were not read to the end and whose context did not end. Each held its
	// place until the garbage collector found it, so it should be 0.
	Leaked int64
}

// Stats returns a snapshot of the counts. It may be called at any time.
func (s *Server) Stats() Stats {
	return Stats{
		Exempt:         s.exempt.Value(),
		ExemptStreams:  s.openExempt.Taken(),
		Streams:        s.open.Taken(),
		StreamsRefused: s.open.refused.Value() + s.openExempt.refused.Value(),
		Tapped:         s.tapped.Value(),
	}
}

// Unary is a grpc.UnaryServerInterceptor. It does not recover, so a panic keeps its stack, and it also handles
// runtime.Goexit.
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method := info.FullMethod
	if s.o.Exempt(method) {
		s.exempt.Add(1)
		return handler(ctx, req)
	}
	if s.load != nil {
		s.reportLoad(ctx, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
	}
	r := s.describe(ctx, method)
	permit, err := s.gate.Enter(ctx, r)
	if err != nil {
		trailer, err := s.refusalOf(err)
		_ = grpc.SetTrailer(ctx, trailer) // fails only if there is no trailer; the status says the same
		s.tellRefused(func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
		return nil, err
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, permit.Arrived().Add(r.Timeout))
		defer cancel()
	}
	returned := false
	defer func() {
		if !returned {
			s.unwind(ctx, &permit)
		}
	}()
	resp, err := handler(ctx, req)
	s.took.done(ctx, method, &permit, s.outcome(ctx, method, &permit, err, 0))
	returned = true
	if err != nil {
		err = s.outward(err, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
	}
	if s.tells != nil {
		if report := s.tells.Sometimes(time.Now()); report != nil {
			_ = grpc.SetTrailer(ctx, report.Trailer)
		}
	}
	return resp, err
}

// describe returns the Request for method, which the server has: the method is its route, unless it names another.
func (s *Server) describe(ctx context.Context, method string) spillway.Request {
	r := s.o.Request(ctx, method)
	if r.Route == "" {
		r.Route = method
	}
	return r
}

// outcome returns the outcome of a call whose handler has returned err, and has waited for its client for the given
// time.
func (s *Server) outcome(
	ctx context.Context, method string, permit *spillway.Permit, err error, waited time.Duration,
) spillway.Outcome {
	if ctx.Err() != nil { // asked once: the client may go away between two looks
		if clientGone(ctx, permit.Arrived()) {
			return spillway.Ignored
		}
		err = context.DeadlineExceeded
	}
	if err != nil && codeOf(err) == codes.DeadlineExceeded && s.took.unfair(method, allotted(ctx, permit.Arrived())-waited) {
		return spillway.Ignored
	}
	return s.o.Outcome(ctx, method, err)
}

// unwind ends a call whose handler has panicked or exited its goroutine.
func (s *Server) unwind(ctx context.Context, permit *spillway.Permit) {
	if clientGone(ctx, permit.Arrived()) {
		permit.Done(spillway.Ignored)
		return
	}
	permit.Done(spillway.Failure)
}

// Stream is a grpc.StreamServerInterceptor. Like Unary, it does not recover.
func (s *Server) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	method := info.FullMethod
	if s.o.Exempt(method) {
		return s.exemptStream(srv, ss, handler)
	}
	if s.load != nil {
		s.reportLoad(ss.Context(), ss.SetTrailer)
	}
	r := s.describe(ss.Context(), method)
	mode := s.o.Stream(method)
	if mode == WholeStream {
		return s.whole(srv, ss, method, r, handler)
	}
	return s.detached(srv, ss, info, handler, r, mode)
}

// exemptStream runs a stream that bypasses the gate. Exempt streams have the same number of places as the others, but
// separate ones.
func (s *Server) exemptStream(srv any, ss grpc.ServerStream, handler grpc.StreamHandler) error {
	who := s.openExempt.holderOf(ss.Context(), &spillway.Request{})
	if !s.openExempt.granted(s.openExempt.Take(who)) {
		return s.refuseStream(ss, errTooManyStreams)
	}
	defer s.openExempt.GiveBack(who)
	s.exempt.Add(1)
	return handler(srv, ss)
}

func (s *Server) refuseStream(ss grpc.ServerStream, err error) error {
	trailer, err := s.refusalOf(err)
	ss.SetTrailer(trailer)
	s.tellRefused(ss.SetTrailer)
	return err
}

// tellRefused adds to the trailer of a refused call what clients should hold back.
func (s *Server) tellRefused(setTrailer func(metadata.MD)) {
	if s.tells != nil {
		setTrailer(s.tells.Report(time.Now()).Trailer)
	}
}
