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
// context give the outcome for the policies ([DefaultOutcome]). A call that the gate refuses ends at once with
// RESOURCE_EXHAUSTED, a RetryInfo and the trailer grpc-retry-pushback-ms, which the retries of gRPC obey. The answer is
// prepared beforehand, and nothing is logged.
//
// # Where it stands
//
// Put [Server.Unary] and [Server.Stream] outside all expensive interceptors: authentication, validation, tracing. The
// interceptor that recovers from panics may stand on either side: a panic is a failure, and passes through untouched.
//
// An interceptor runs when the message has been read and decoded. [Server.Tap] runs before that, where a refusal costs
// less than half. It takes no permit, because it does not know whether the call will reach its handler. The interceptor
// takes the permit. Use both.
//
// # What is not gated
//
// Health checks and reflection are exempt ([DefaultExempt]): a liveness probe that is shed turns an overload into a
// restart. Exempt streams, such as the Watch of the health service, have their own places ([Options.MaxStreams]).
//
// # Streams
//
// A stream passes the gate when it is opened, then leaves it, because the lifetime of a subscription says nothing about
// the service; it counts against a separate limit ([Options.MaxStreams]). [Options.Stream] names the methods whose
// streams are work, either as a whole or message by message.
//
// # Deadlines
//
// The gate never starts a call whose client is gone. With a policy of package deadline in the gate, a call with too
// little time for its method is refused with DEADLINE_EXCEEDED before it does useless work. [Options.Request] may
// shorten the time of a call. gRPC itself passes the remaining time on to the calls that its handler makes.
//
// # Servers and clients that help each other
//
// With [Options.TellClients] a server says in its trailers which calls to hold back under overload, and a [Client] that
// listens to it ([ClientOptions.ListenTo]) does not make them.
//
// # Trust
//
// The metadata of a client is ignored, except for the deadline of the protocol and for fields that [Options.Request]
// reads. A missed deadline counts against the service only if it left enough time ([Options.MinBudget]). SECURITY.md
// lists what an attacker can achieve.
package grpcgate
