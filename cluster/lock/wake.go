package lock

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// wakeChannel, between the prefix and the node, makes the name of the channel on which a node is woken.
const wakeChannel = ":wake:"

// enqueue registers a waiting token, and returns the channel that wakes it.
func (s *Semaphore) enqueue(token string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	woken := make(chan struct{}, 1)
	s.waiters[token] = woken
	return woken
}

func (s *Semaphore) dequeue(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiters, token)
}

// wakeOne wakes one waiting call.
func (s *Semaphore) wakeOne(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if woken, ok := s.waiters[token]; ok {
		nudge(woken)
	}
}

func (s *Semaphore) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, woken := range s.waiters {
		nudge(woken)
	}
}

func nudge(woken chan<- struct{}) {
	select {
	case woken <- struct{}{}:
	default: // it will ask anyway
	}
}

// listen starts the goroutine that receives messages, if there is none yet.
func (s *Semaphore) listen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard || s.closed {
		return
	}
	s.heard = true
	s.done.Go(s.listenLoop)
}

// listenLoop receives messages until Close. While it cannot, waiting callers poll.
func (s *Semaphore) listenLoop() {
	for s.ctx.Err() == nil {
		messages := s.conn.Client.Subscribe(s.ctx, s.channel+s.node)
		stop := context.AfterFunc(s.ctx, func() { _ = messages.Close() })
		s.hear(messages)
		if s.listening.Swap(false) {
			s.wakeAll() // they poll now
		}
		stop()
		_ = messages.Close() // it may be closed already
		timer := time.NewTimer(s.poll)
		select {
		case <-s.ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// hear forwards messages until the connection breaks or does not answer a ping.
func (s *Semaphore) hear(messages *redis.PubSub) {
	asked := false
	for {
		msg, err := messages.ReceiveTimeout(s.ctx, max(s.ttl/4, 4*s.poll))
		var network net.Error
		switch {
		case err == nil:
			asked = false
		case errors.As(err, &network) && network.Timeout() && !asked:
			asked = true
			err = messages.Ping(s.ctx)
		}
		if err != nil {
			return
		}
		switch m := msg.(type) {
		case *redis.Subscription:
			s.listening.Store(true)
			s.wakeAll() // earlier messages were missed
		case *redis.Message:
			s.wakeOne(m.Payload)
		}
	}
}
