// Package httpgate puts a [spillway.Gate] around a net/http handler, or in front of a client.
//
//	gate := spillway.New(spillway.Must(shedder.New(nil)))
//	protect := httpgate.Handler(gate, nil)
//	http.ListenAndServe(":8080", protect(mux))
//
//	client := &http.Client{Transport: httpgate.Transport(spillway.New(brk), nil, nil)}
//
// A request that the gate admits runs as it would without the gate. When it ends, its status and the state of its context
// tell the policies how it went. A request that the gate refuses is answered at once with 503 Service Unavailable, or 429
// Too Many Requests if the caller used up its own share, a Retry-After and a small problem document. Nothing is logged,
// and on HTTP/1 its body has 100 ms to arrive: the refused request stays the cheapest one in the process.
//
// # Where it stands
//
// Put it outside whatever costs something (authentication, body parsing, tracing) and inside four things: the middleware
// that recovers from panics, CORS, [http.TimeoutHandler] and [http.MaxBytesHandler]. A gate outside a TimeoutHandler gets
// its permit back when the timeout strikes, while the handler still burns what the permit stood for. An h2c.NewHandler
// stands outside too: of the connections that it takes over, a gate around it would see one request each.
//
// The server needs timeouts. A gate decides who comes in; a client that neither sends nor reads holds its place until a
// ReadTimeout or WriteTimeout ends it. The time that it keeps the handler waiting does not count as latency.
//
// # Limits per client
//
// Whose a request is, [Options.Request] says: [KeyBy] makes one of the address of the client ([ClientIP]), a header field
// ([HeaderKey]), the route ([PatternKey]), or several of them. No field is believed unless you name it, and those about
// addresses only from proxies that you trust. What a client has left, [RateLimit] tells in the header of each answer, if
// you want it to: in the fields RateLimit-Policy and RateLimit that the IETF drafts, or the older X-RateLimit.
//
// # What is not gated
//
// Health checks and metrics are exempt ([DefaultExempt], [ExemptPaths]): a liveness probe that is shed turns an overload
// into a restart. Long-lived requests (WebSockets, event streams) pass the gate like any other, then leave it, because how
// long a subscription stays open says nothing about the service; they count against a limit of their own
// ([Options.MaxLongLived]), of which no key takes all.
//
// # Deadlines
//
// A request whose client is gone, or whose deadline has passed, never starts. With [Options.Deadline], neither does one
// that would hardly finish in time, judged by how long the fastest requests for the same route took.
//
// # Clients
//
// [Transport] does for a client what Handler does for a server. Its key is the host, so that one gate with a breaker per
// key serves a client of many hosts. A call is in flight until its response has been read, closed or broken off. A
// refused call fails at once with the *[spillway.Rejection], and a [RetryBudget] tells whether to try again.
//
// # Whose fault it is
//
// A request counts against the service only if the service had enough time. A body that cannot be read, a deadline that
// is shorter than what requests of the route take ([Options.MinBudget]), a client that is gone and a refusal by another
// gate of the process are Ignored. In front of a reverse proxy, [ProxyError] makes refusals of them.
//
// # Other frameworks
//
// [Handler] fits whatever takes a func(http.Handler) http.Handler. For the others, [spillway.Gate.Enter], [WriteRefusal]
// or [Problem], and [DefaultOutcome] are the parts that it is made of.
package httpgate
