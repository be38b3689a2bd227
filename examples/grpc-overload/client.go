package main

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/spillway-go/spillway/lab/overload"
)

const (
	connections = 16 // number of connections that share the calls, like clients in other processes
	streamEvery = 4  // every fourth call is a stream
)

// client makes calls over a few connections in turn.
type client struct {
	conns []*grpc.ClientConn
	calls atomic.Uint64
}

func newClient(addr string) (*client, error) {
	c := &client{}
	for range connections {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			c.Close()
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

func (c *client) Close() {
	for _, conn := range c.conns {
		_ = conn.Close() // nothing more is expected of it
	}
}

func (c *client) Do(deadline time.Time) error {
	n := c.calls.Add(1)
	conn := c.conns[n/streamEvery%connections]
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if n%streamEvery != 0 {
		return refused(ctx, conn.Invoke(ctx, unaryMethod, &emptypb.Empty{}, &emptypb.Empty{}))
	}
	return refused(ctx, readAll(ctx, conn))
}

// readAll makes a call to the streaming method and reads all its messages.
func readAll(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := conn.NewStream(ctx, &serviceDesc.Streams[0], streamMethod)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&emptypb.Empty{}); err != nil && !errors.Is(err, io.EOF) { // after io.EOF, RecvMsg returns the reason
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for got := 0; ; got++ {
		err := stream.RecvMsg(&emptypb.Empty{})
		switch {
		case errors.Is(err, io.EOF) && got == parts:
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
}

// refused reports whether err is a refusal, for the counters.
func refused(ctx context.Context, err error) error {
	switch code := status.Code(err); {
	case code == codes.ResourceExhausted, code == codes.DeadlineExceeded && ctx.Err() == nil:
		return overload.ErrRefused // the latter at once, because it would have been too late
	case code == codes.DeadlineExceeded:
		return context.DeadlineExceeded
	}
	return err
}
