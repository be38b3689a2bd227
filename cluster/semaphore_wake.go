package cluster

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// wakeChannel, between the prefix and the node, makes the name of the channel on which a node hears that it may ask again.
const wakeChannel = ":wake:"

// enqueue lists a token that waits, and returns where it is woken.
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

// wakeOne has one who waits ask again.
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
	default: // it will ask anyhow
	}
}

// listen starts the goroutine that hears messages, if there is none yet.
func (s *Semaphore) listen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard || s.closed {
		return
	}
	s.heard = true
	s.done.Go(s.listenLoop)
}

// listenLoop hears messages until Close. While it cannot, those who wait poll.
func (s *Semaphore) listenLoop() {
	for s.ctx.Err() == nil {
		messages := s.conn.client.Subscribe(s.ctx, s.channel+s.node)
		stop := context.AfterFunc(s.ctx, func() { _ = messages.Close() })
		s.hear(messages)
		if s.listening.Swap(false) {
			s.wakeAll() // they poll now
		}
		stop()
		_ = messages.Close() // which it may be already
		timer := time.NewTimer(s.poll)
		select {
		case <-s.ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// hear hands on messages until the connection breaks or is silent in spite of a question.
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
			s.wakeAll() // what was said before was not heard
		case *redis.Message:
			s.wakeOne(m.Payload)
		}
	}
}
