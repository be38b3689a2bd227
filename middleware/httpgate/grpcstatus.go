package httpgate

import (
	"net/http"
	"strconv"

	"github.com/spillway-go/spillway/internal/grpctext"
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
	code := grpcField(w.Header(), "Grpc-Status", http.TrailerPrefix+"Grpc-Status")
	if len(code) == 0 {
		return status
	}
	n, err := strconv.Atoi(code[0])
	if err != nil || n < 0 || n >= len(statusOfGRPC) {
		return http.StatusInternalServerError // as Unknown, which is how clients take it
	}
	return statusOfGRPC[n]
}

// grpcField returns the values of a field of the answer, under its name or the name of the trailer.
func grpcField(h http.Header, name, trailer string) []string {
	if values := h[name]; len(values) > 0 {
		return values
	}
	return h[trailer]
}

// badMessage reports whether a gRPC server says that it could not read or write a message of a call because of its content or
// size. It does so with the code of a bug or of an overload, which stands for status, so the text decides.
func badMessage(w http.ResponseWriter, r *http.Request, status int) bool {
	if status != http.StatusInternalServerError && status != http.StatusTooManyRequests || !isGRPC(r) {
		return false
	}
	text := grpcField(w.Header(), "Grpc-Message", http.TrailerPrefix+"Grpc-Message")
	return len(text) > 0 && (grpctext.Unsendable(text[0]) || text[0] == cutMessage)
}

// cutMessage is the message of the status if a client ends its side within a message.
const cutMessage = "unexpected EOF"
