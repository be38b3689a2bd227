// Package httpgate puts a [spillway.Gate] around a net/http handler, or in front of a client.
//
//	gate := spillway.New(spillway.Must(shedder.New(nil)))
//	protect := httpgate.Handler(gate, nil)
//	http.ListenAndServe(":8080", protect(mux))
//
//	client := &http.Client{Transport: spillway.Must(httpgate.NewTransport(spillway.New(brk), nil, nil))}
//
// A request that the gate admits runs as it would without the gate. When it ends, its status and the state of its
// context give the outcome for the policies. A request that the gate refuses is answered at once with 503 Service
// Unavailable, or with 429 Too Many Requests if the caller used up its own share. The answer has a Retry-After and a
// small problem document. Nothing is logged, and on HTTP/1 its body has 100 ms to arrive: the refused request stays the cheapest one
// in the process.
//
// # Where it stands
//
// Put it outside expensive middleware (authentication, body parsing, tracing) and inside four things: the middleware
// that recovers from panics, CORS, [http.TimeoutHandler] and [http.MaxBytesHandler]. A gate outside a TimeoutHandler
// gets its permit back when the timeout strikes, while the handler is still working. An h2c.NewHandler must be outside
// too, because a gate around it would see only one request for each connection.
//
// The server needs timeouts. A gate decides which requests are admitted. A client that does not send or read keeps its
// place until a ReadTimeout or WriteTimeout ends it. The time that it keeps the handler waiting does not count as
// latency.
//
// # Limits per client
//
// [Options.Request] sets the key of a request. [KeyBy] makes one from the address of the client ([ClientIP]), a header
// field ([HeaderKey]), the route ([PatternKey]), or several of them. No header field counts unless you name it, and
// address fields count only from proxies that you trust. [RateLimit] writes how much a client has left into the header
// of each answer, in the fields RateLimit-Policy and RateLimit that the IETF drafts, or the older X-RateLimit.
//
// # What is not gated
//
// Health checks and metrics are exempt ([DefaultExempt], [ExemptPaths]): a liveness probe that is shed turns an
// overload into a restart. Long-lived requests (WebSockets, event streams) pass the gate like any other, then leave it,
// because the lifetime of a subscription says nothing about the service. They count against a separate limit
// ([Options.MaxLongLived]), and no key can take all of it.
//
// # Deadlines
//
// A request whose client is gone, or whose deadline has passed, never starts. With a policy of package deadline in the
// gate, a request that has too little time left does not start either. The deadline is that of the context, or the
// Timeout of [Options.Request], such as [ClientTimeout], which also ends the context of the handler. A [Transport] passes
// the remaining time on ([TransportOptions.TimeoutHeader]).
//
// # Clients
//
// [Transport] does for a client what Handler does for a server. Its key is the host, so that one gate with a breaker per
// key serves a client of many hosts. A call is in flight until its response has been read, closed or broken off. A
// refused call fails at once with the *[spillway.Rejection]. [Retry] sends requests again, with a random wait, if a
// [RetryBudget] allows it.
//
// # Servers and clients that help each other
//
// A refusal costs a server something, so an overload of fifty times the capacity can still bring it down. With
// [Options.TellClients] a server says in its answers which requests to hold back, and a Transport that listens to it
// ([TransportOptions.ListenTo]) does not send them. About 1.4 times the capacity then reaches the server, whatever the
// clients want to send.
//
// # Outcomes
//
// A request counts against the service only if the service had enough time. These are Ignored: an unreadable body, a
// client that is gone, and a refusal by another gate of the process. So is a request whose deadline is shorter than the
// usual latency of the route ([Options.MinBudget]). In front of a reverse proxy, use [ProxyError], so that refusals by
// the proxy's own gate are answered as refusals.
//
// # Other frameworks
//
// [Handler] fits every framework that takes a func(http.Handler) http.Handler. For other frameworks, use its building
// blocks: [spillway.Gate.Enter], [WriteRefusal] or [Problem], and [DefaultOutcome].
package httpgate
