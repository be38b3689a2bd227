// Package grpcgate puts a [spillway.Gate] into gRPC servers and clients, as interceptors.
//
//	gate := spillway.New(spillway.Must(shedder.New(nil)))
//	s := spillway.Must(grpcgate.NewServer(gate, nil))
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(s.Unary),
//		grpc.StreamInterceptor(s.Stream),
//		grpc.InTapHandle(s.Tap), // refuses before the message is read
//	)
//
//	c := spillway.Must(grpcgate.NewClient(spillway.New(brk), nil))
//	conn, err := grpc.NewClient(target, grpc.WithUnaryInterceptor(c.Unary), grpc.WithStreamInterceptor(c.Stream))
//
// A call that the gate admits runs as it would without the gate. When it ends, its status code and the state of its
// context tell the policies how it went ([DefaultOutcome]). A call that the gate refuses ends at once with
// RESOURCE_EXHAUSTED, a RetryInfo and the trailer grpc-retry-pushback-ms, which the retries of gRPC obey. The answer is
// prepared beforehand, and nothing is logged.
//
// # Where it stands
//
// Put [Server.Unary] and [Server.Stream] outside whatever costs something: authentication, validation, tracing. The
// interceptor that recovers from panics may stand on either side: a panic is a failure, and passes through untouched.
//
// An interceptor runs when the message has been read and decoded. [Server.Tap] runs before that, where a refusal costs
// less than half. It only looks: whether a call that it let through will ever reach its handler is not known there, so it is
// the interceptor that takes the permit. Use both.
//
// # What is not gated
//
// Health checks and reflection are exempt ([DefaultExempt]): a liveness probe that is shed turns an overload into a
// restart. Exempt streams, such as the Watch of the health service, have places of their own ([Options.MaxStreams]).
//
// # Streams
//
// A stream passes the gate when it is opened, then leaves it, because how long a subscription stays open says nothing
// about the service; it counts against a limit of its own ([Options.MaxStreams]). [Options.Stream] names the methods
// whose streams are work, from the first to the last message or message by message.
//
// # Deadlines
//
// The gate never starts a call whose client is gone. A unary call that has less time left than the fastest of its method
// took is refused with DEADLINE_EXCEEDED, so that no work is done that nobody waits for ([Options.AdmitLate]).
//
// # Trust
//
// Nothing that a client can put into its metadata counts, except for the deadline of the protocol, unless [Options.Call]
// reads it by name. A deadline that passes counts against the service only if it left enough time ([Options.MinBudget]),
// and what a client sends or fails to send does not count against anybody: SECURITY.md says how far a client gets.
package grpcgate
