// Command connect serves two services with Connect, each behind its own gate, to clients that speak Connect, gRPC or
// gRPC-Web.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/examples/internal/work"
	"github.com/spillway-go/spillway/internal/usage"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

const about = `connect shows gates around two services of Connect, for clients that speak
Connect, gRPC or gRPC-Web. Each service has its own gate: api a shedder, and
admin a limit of ten calls at once. /livez is outside both. A refusal has the
form that the protocol of its client expects. The message of a call says how
long it takes.`

func main() {
	listen := usage.Listen("connect", about, "http://localhost:8080/api/work",
		"--json", `'"0.1s"'`) // a JSON text is a whole call of Connect's protocol
	api := spillway.New(spillway.Must(shedder.New(nil)))
	admin := spillway.New(spillway.Must(limiter.New(limiter.Concurrency{Limit: 10})))
	log.Fatal(http.ListenAndServe(listen, newHandler(api, admin))) //nolint:gosec // an example needs no timeouts
}

// newHandler returns the services. With generated code, the inner handlers are those of apiv1connect.NewAPIHandler and the like.
func newHandler(api, admin *spillway.Gate) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(http.ResponseWriter, *http.Request) {})
	options := &httpgate.Options{Refuse: refuse}
	mux.Handle("/api/", httpgate.Handler(api, options)(service("/api/", map[string]method{
		"work": doWork, "fail": fail, "panic": func(context.Context, *request) (*response, error) { panic("broken") },
	})))
	mux.Handle("/admin/", httpgate.Handler(admin, options)(service("/admin/", map[string]method{"work": doWork})))
	return mux
}

// refuse answers a request that was refused in the protocol of its client.
func refuse(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection) {
	httpgate.Problem(rej, w.Header().Set) // for its Retry-After and Cache-Control; type and body are those of the protocol
	err := connect.NewError(connect.CodeResourceExhausted, errors.New("overloaded"))
	err.Meta().Set("Grpc-Retry-Pushback-Ms", w.Header().Get("Retry-After")+"000") // what gRPC clients wait for
	_ = connect.NewErrorWriter().Write(w, r, err)                                 // a client that is gone is no error
}

type (
	request  = connect.Request[durationpb.Duration]
	response = connect.Response[emptypb.Empty]
	method   = func(context.Context, *request) (*response, error)
)

// service returns a handler of methods.
func service(path string, methods map[string]method) http.Handler {
	mux := http.NewServeMux()
	for name, m := range methods {
		mux.Handle(path+name, connect.NewUnaryHandler(path+name, m))
	}
	return mux
}

func doWork(ctx context.Context, req *request) (*response, error) {
	if err := work.For(ctx, req.Msg.AsDuration().String()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&emptypb.Empty{}), nil
}

func fail(context.Context, *request) (*response, error) {
	return nil, connect.NewError(connect.CodeInternal, errors.New("broken"))
}
