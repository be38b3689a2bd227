package httpgate

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/spillway-go/spillway"
)

// ProxyError returns the ErrorHandler of a [net/http/httputil.ReverseProxy] whose Transport is gated:
//
//	proxy.Transport = spillway.Must(httpgate.NewTransport(gate, nil, nil))
//	proxy.ErrorHandler = httpgate.ProxyError(nil)
//
// A call that the gate refused is answered as [WriteRefusal] does, with a Retry-After, and a [Middleware] around the
// proxy counts it as Ignored. Without ProxyError, a refusal would become a 502, which outer breakers count as a
// failure. Other errors go to next. A Middleware around the proxy counts them as Ignored too if the request could not
// be sent unchanged, for example because of an invalid trailer, or because it upgrades a connection to a server of
// HTTP/2. If next is nil, such a request is answered with 400. A request larger than an [http.MaxBytesReader] allows is
// answered with 413, one whose deadline has passed with 504 (a call of gRPC with DEADLINE_EXCEEDED), and any other with 502. Nothing is
// logged.
func ProxyError(next func(w http.ResponseWriter, r *http.Request, err error)) func(http.ResponseWriter, *http.Request, error) {
	if next == nil {
		next = answerError
	}
	return func(w http.ResponseWriter, r *http.Request, err error) {
		if spillway.RejectionOf(err) != nil {
			WriteRefusal(w, r, err)
			return
		}
		if notForwardable(r, err) {
			markRefused(w)
		}
		next(w, r, err)
	}
}

// notForwardable reports whether the error err of r is about r itself: the Transport cannot send it, or the proxy refuses to
// upgrade to what it names.
func notForwardable(r *http.Request, err error) bool {
	return unsendable(r, err) || strings.HasPrefix(err.Error(), "client tried to switch to invalid protocol ")
}

// answerError answers r, whose call failed with err.
func answerError(w http.ResponseWriter, r *http.Request, err error) {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(r.Context().Err(), context.DeadlineExceeded):
		if isGRPC(r) { // its client would turn a 504 into UNAVAILABLE, and may retry that
			h := w.Header()
			h["Content-Type"], h["Grpc-Status"] = r.Header["Content-Type"], headerDeadlineExceeded
			w.WriteHeader(http.StatusOK)
			return
		}
		w.WriteHeader(http.StatusGatewayTimeout)
	case notForwardable(r, err):
		w.WriteHeader(http.StatusBadRequest)
	default:
		w.WriteHeader(http.StatusBadGateway)
	}
}
