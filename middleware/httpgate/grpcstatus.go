package httpgate

import (
	"net/http"
	"strconv"
)

// statusOfGRPC maps the code of a gRPC status to the HTTP status of the same meaning, by the table of google.rpc.Code.
// Unimplemented is 404 rather than 501, because a method that does not exist has not failed.
var statusOfGRPC = [...]int{
	http.StatusOK, statusClientClosedRequest, http.StatusInternalServerError, // OK, Canceled, Unknown
	http.StatusBadRequest, http.StatusGatewayTimeout, http.StatusNotFound, // InvalidArgument, DeadlineExceeded, NotFound
	http.StatusConflict, http.StatusForbidden, http.StatusTooManyRequests, // AlreadyExists, PermissionDenied, ResourceExhausted
	http.StatusBadRequest, http.StatusConflict, http.StatusBadRequest, // FailedPrecondition, Aborted, OutOfRange
	http.StatusNotFound, http.StatusInternalServerError, http.StatusServiceUnavailable, // Unimplemented, Internal, Unavailable
	http.StatusInternalServerError, http.StatusUnauthorized, // DataLoss, Unauthenticated
}

// meantStatus returns the effective status of the handler's answer to r through w. It is status, except for gRPC, which
// always answers 200 and puts its real status in a trailer.
func meantStatus(w http.ResponseWriter, r *http.Request, status int) int {
	if status != http.StatusOK || !isGRPC(r) {
		return status
	}
	h := w.Header() // not for others: net/http may copy it
	code := h["Grpc-Status"]
	if len(code) == 0 {
		code = h[http.TrailerPrefix+"Grpc-Status"]
	}
	if len(code) == 0 {
		return status
	}
	n, err := strconv.Atoi(code[0])
	if err != nil || n < 0 || n >= len(statusOfGRPC) {
		return http.StatusInternalServerError // as Unknown, which is how clients take it
	}
	return statusOfGRPC[n]
}
