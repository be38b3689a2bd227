package main

import (
	"context"
	"io"
	"net"
	"sync"
)

// A relay passes connections on to somewhere else, until it is cut.
type relay struct {
	addr string // where it listens, once it does
	to   string

	listener net.Listener
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// open listens at the address that the relay has had before, or else at a free one.
func (r *relay) open() error {
	at := r.addr
	if at == "" {
		at = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.listener, r.cancel, r.addr = l, cancel, l.Addr().String()
	r.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.running.Go(func() { r.pass(ctx, c) })
		}
	})
	return nil
}

// cut ends all connections, and refuses new ones.
func (r *relay) cut() {
	if r.listener != nil {
		_ = r.listener.Close()
		r.cancel()
		r.running.Wait()
		r.listener = nil
	}
}

// pass copies both ways until either end is closed, or the relay is cut.
func (r *relay) pass(ctx context.Context, c net.Conn) {
	defer c.Close()
	var dialer net.Dialer
	far, err := dialer.DialContext(ctx, "tcp", r.to)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close(); _ = far.Close() })()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, far)
		_ = c.Close()
	})
	_, _ = io.Copy(far, c)
	_ = far.Close()
	back.Wait()
}
