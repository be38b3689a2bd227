package grpcgate

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-go/spillway"
)

// pushbackKey is the trailer that the retries of gRPC obey, in milliseconds.
const pushbackKey = "grpc-retry-pushback-ms"

// The messages for refused clients. They reveal nothing about the policies inside.
const (
	textCapacity = "server has no capacity for this call now"
	textQuota    = "quota exceeded"
	textLate     = "too little time is left to finish this call before its deadline"
)

var (
	// errUnknown stands for a refusal that is neither a *Rejection nor the end of a context.
	errUnknown = &spillway.Rejection{Policy: "unknown", Reason: "unknown"}

	// errTooManyStreams refuses a stream for which there is no room.
	errTooManyStreams = &spillway.Rejection{Policy: "grpcgate", Reason: "too many streams"}
)

// tooLate answers a call with too little time. Its client sees the same status as without the refusal, only sooner. It
// does not count that status against the service, and does not retry it.
func tooLate() *answer { return &answer{status: status.New(codes.DeadlineExceeded, textLate)} }

// A refusedError is the error of a refused call: a status for gRPC, and the cause, which is or wraps a
// *spillway.Rejection, for callers that inspect it.
type refusedError struct {
	cause error
	*answer
}

func (e *refusedError) Error() string              { return e.status.String() }
func (e *refusedError) GRPCStatus() *status.Status { return e.status }
func (e *refusedError) Unwrap() error              { return e.cause }

// An answer is the response to a refused client. It is shared, and never modified.
type answer struct {
	status  *status.Status
	trailer metadata.MD // nil if the time to try again is unknown
}

func newAnswer(code codes.Code, text string, delay time.Duration) *answer {
	ms := min(int64(delay/time.Millisecond), math.MaxInt32)
	info := &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}
	return &answer{
		status:  spillway.Must(status.New(code, text).WithDetails(info)),
		trailer: metadata.Pairs(pushbackKey, strconv.FormatInt(ms, 10)),
	}
}

// answers caches the answers given so far, one for each delay.
type answers struct {
	code  codes.Code
	text  string
	steps []atomic.Pointer[answer] // for each of delaySteps
}

func newAnswers(code codes.Code, text string) *answers {
	return &answers{code: code, text: text, steps: make([]atomic.Pointer[answer], len(delaySteps))}
}

// of returns the answer that asks for a delay of d, or a little longer.
func (a *answers) of(d time.Duration) *answer {
	i, ok := delayStep(d)
	if !ok {
		return newAnswer(a.code, a.text, d)
	}
	prepared := a.steps[i].Load()
	if prepared == nil {
		prepared = newAnswer(a.code, a.text, time.Duration(delaySteps[i])*time.Millisecond)
		a.steps[i].Store(prepared)
	}
	return prepared
}

// refusalOf returns the trailer and the error of a call that was refused with err.
func (s *Server) refusalOf(err error) (metadata.MD, error) {
	rej := spillway.RejectionOf(err)
	if rej == nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return nil, status.FromContextError(err).Err()
		}
		rej = errUnknown
	}
	to := s.answerTo(rej, rej.OverQuota)
	return to.trailer, &refusedError{cause: rej, answer: to}
}

// answerTo returns the answer to a call that was refused with rej. quota says that its caller has used up its own quota.
func (s *Server) answerTo(rej *spillway.Rejection, quota bool) *answer {
	switch {
	case rej.TooLate:
		return s.late
	case quota:
		return s.quota.of(spreadDelay(rej.RetryAfter))
	}
	return s.capacity.of(spreadDelay(rej.RetryAfter))
}

// outward returns err as the remote caller may see it. A handler may return, without its own status, the error of a
// call that another gate refused. Then the answer is a refusal: with a delay, and without the name of a policy.
func (s *Server) outward(err error, setTrailer func(metadata.MD)) error {
	if err == nil {
		return nil
	}
	rej := spillway.RejectionOf(err)
	if rej == nil {
		return err
	}
	var own interface{ GRPCStatus() *status.Status }
	if errors.As(err, &own) {
		if _, local := own.(*localError); !local {
			return err
		}
	}
	to := s.answerTo(rej, false) // a quota of this service downstream is not a quota of its caller
	setTrailer(to.trailer)
	return &refusedError{cause: err, answer: to}
}
