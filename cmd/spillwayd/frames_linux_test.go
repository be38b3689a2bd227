package main

import (
	"bytes"
	"encoding/binary"
)

// The frames of HTTP/2 that strangers send, byte by byte, because a client of net/http sends no wrong ones.
const (
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameSettings     = 0x4
	framePing         = 0x6
	frameContinuation = 0x9

	endStream  = 0x1
	endHeaders = 0x4

	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
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

// requestBlock is "GET / HTTP/2" with the authority a.
var requestBlock = []byte{0x82, 0x86, 0x84, 0x41, 1, 'a'}

// fieldBlock is n fields x: with values of the given size, below 127, which the table does not remember.
func fieldBlock(n, size int) []byte {
	one := append([]byte{0x00, 1, 'x', byte(size)}, bytes.Repeat([]byte{'x'}, size)...)
	return bytes.Repeat(one, n)
}
