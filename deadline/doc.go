// Package deadline refuses requests that have too little time left to finish.
//
//	late, err := deadline.New(nil)
//	...
//	gate := spillway.New(late, queue, shed) // first, so that waits behind it count
//	...
//	r := spillway.Request{Route: "GET /report", Timeout: 20 * time.Millisecond}
//	permit, err := gate.Enter(ctx, r) // or the deadline of ctx counts, if it comes earlier
//	if errors.Is(err, context.DeadlineExceeded) {
//		// refused: GET /report takes longer
//	}
//
// A [Policy] learns, for each [spillway.Request].Route, the latency that one request in a hundred stays under, with all
// waits in the policies behind it. It refuses a request whose [spillway.Request].Timeout is shorter. So no work is done
// for callers that will have left. A request that would probably be late, but may be in time, is admitted.
//
// The middlewares fill in the route and the time. Package httpgate takes them from the pattern of the handler, from the
// deadline of the context and from the Timeout of its [Options.Request]. Package grpcgate takes them from the method and
// the grpc-timeout.
//
// [Options.Request]: https://pkg.go.dev/github.com/spillway-go/spillway/middleware/httpgate#Options
package deadline
