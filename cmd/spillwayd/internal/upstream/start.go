package upstream

import (
	"container/list"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
)

// A start bounds the requests that a backend has not answered yet, while it is not known how many it can carry. A flood from one moment to
// the next brings hundreds of requests before the shedder can see that they are too many, and most servers work on all that they get,
// although the clients leave.
//
// The bound begins at startBound. It doubles when as many requests have been answered, if any had to wait since the last time. It never
// falls, and ends at startEnd. Requests above it wait in order, until one is answered, their client leaves, or for startWait at most: then
// they are sent, because the backend may be slow with room for many. So a start refuses nothing. The shedder counts those who wait as in
// flight. The zero start is ready to use.
type start struct {
	mu       sync.Mutex
	grown    int // doublings so far
	sent     int // requests without an answer
	answered int // since the bound was last considered
	waited   bool
	over     bool      // there is no bound any more
	waiting  list.List // of chan struct{}, which are closed when they leave it
}

const (
	startBound = 16
	startEnd   = 1024
	startWait  = time.Second
)

// errLeft is the refusal of a request whose client left before it was sent. It is no fault of the backend.
var errLeft = &spillway.Rejection{Policy: "backends", Reason: "client left"}

type clientKey struct{}

// IsClientKey reports whether key asks for the context of the client that waits for a request. It is for contexts that outlive the client.
func IsClientKey(key any) bool { return key == (clientKey{}) }

// clientOf returns the context of the client that waits for r.
func clientOf(r *http.Request) context.Context {
	if client, ok := r.Context().Value(clientKey{}).(context.Context); ok {
		return client
	}
	return r.Context()
}

// around returns rt behind s.
func (s *start) around(rt roundTripper) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		if !s.enter(r) {
			if r.Body != nil {
				r.Body.Close()
			}
			return nil, errLeft
		}
		answered := false
		defer func() { s.leave(answered) }()
		res, err := rt(r)
		answered = err == nil
		return res, err
	}
}

// enter waits until r may be sent. It reports false if its client has left.
func (s *start) enter(r *http.Request) bool {
	s.mu.Lock()
	if s.over || s.sent < s.bound() && s.waiting.Len() == 0 {
		s.sent++
		s.mu.Unlock()
		return true
	}
	ready := make(chan struct{})
	w := s.waiting.PushBack(ready)
	s.waited = true
	s.mu.Unlock()
	most := time.NewTimer(startWait)
	defer most.Stop()
	select {
	case <-ready:
		return true
	case <-most.C:
		s.give(w, ready)
		return true
	case <-clientOf(r).Done():
	case <-r.Context().Done():
	}
	s.give(w, ready)
	s.leave(false)
	return false
}

// give counts the request that waits as w as sent, unless that has happened.
func (s *start) give(w *list.Element, ready chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-ready:
	default:
		s.release(w)
	}
}

// release lets the request that waits as w be sent.
func (s *start) release(w *list.Element) {
	close(s.waiting.Remove(w).(chan struct{})) //nolint:forcetypeassert // the list holds nothing else
	s.sent++
}

// leave notes that a request was answered, or failed.
func (s *start) leave(answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent--
	if answered && !s.over {
		s.answered++
		s.consider()
	}
	for s.waiting.Len() > 0 && (s.over || s.sent < s.bound()) {
		s.release(s.waiting.Front())
	}
}

// consider doubles the bound after as many answers, if requests waited meanwhile.
func (s *start) consider() {
	if s.answered < s.bound() {
		return
	}
	if s.waited {
		s.grown++
	}
	s.answered, s.waited = 0, s.waiting.Len() > 0
	s.over = s.bound() >= startEnd
}

func (s *start) bound() int { return startBound << s.grown }
