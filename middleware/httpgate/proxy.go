package httpgate

import (
	"context"
	"errors"
	"net/http"

	"github.com/spillway-go/spillway"
)

// ProxyError returns the ErrorHandler of a [net/http/httputil.ReverseProxy] whose Transport is gated:
//
//	proxy.Transport = httpgate.Transport(gate, nil, nil)
//	proxy.ErrorHandler = httpgate.ProxyError(nil)
//
// A call that the gate refused is answered as [WriteRefusal] does, with a Retry-After, and a [Middleware] around the proxy
// books it as Ignored. Without it, a refusal would become a 502, which outer breakers take for a failure. Other errors go to
// next. If next is nil, the answer is 413 if the request was larger than an [http.MaxBytesReader] allows, 504 if its deadline
// has passed and 502 otherwise, and nothing is logged.
func ProxyError(next func(w http.ResponseWriter, r *http.Request, err error)) func(http.ResponseWriter, *http.Request, error) {
	if next == nil {
		next = answerError
	}
	return func(w http.ResponseWriter, r *http.Request, err error) {
		if spillway.RejectionOf(err) != nil {
			WriteRefusal(w, r, err)
			return
		}
		next(w, r, err)
	}
}

// answerError answers r, whose call failed with err.
func answerError(w http.ResponseWriter, r *http.Request, err error) {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(r.Context().Err(), context.DeadlineExceeded):
		w.WriteHeader(http.StatusGatewayTimeout)
	default:
		w.WriteHeader(http.StatusBadGateway)
	}
}
