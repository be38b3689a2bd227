package listen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
)

const (
	proxyWait  = 5 * time.Second // for the PROXY header to arrive
	mostLine   = 107             // bytes of a header of version 1, with its end
	mostBinary = 16 + 2048       // bytes of a header of version 2 with extensions
	fixedPart  = 16              // of version 2
)

var errProxy = errors.New("listen: the connection does not begin with a PROXY header")

// signature begins a header of version 2.
func signature() []byte { return []byte("\r\n\r\n\x00\r\nQUIT\n") }

// readProxy reads the PROXY header at the beginning of c. It returns the address of the client, or nil if the header says that
// the proxy itself speaks, and the bytes that it read behind the header.
func readProxy(c net.Conn) (from net.Addr, rest []byte, err error) {
	if err := c.SetReadDeadline(time.Now().Add(proxyWait)); err != nil {
		return nil, nil, err
	}
	buf := make([]byte, 0, 256)
	for {
		from, size, err := parseProxy(buf)
		switch {
		case err == nil:
			return from, buf[size:], c.SetReadDeadline(time.Time{})
		case !errors.Is(err, io.ErrUnexpectedEOF):
			return nil, nil, err
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := c.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil && n == 0 {
			return nil, nil, err
		}
	}
}

// parseProxy parses the header at the beginning of b and returns its size. The error is io.ErrUnexpectedEOF if more bytes are
// needed.
func parseProxy(b []byte) (from net.Addr, size int, err error) {
	const line = "PROXY "
	sig := signature()
	switch n := min(len(b), len(sig)); {
	case bytes.Equal(b[:n], sig[:n]):
		if len(b) < fixedPart {
			return nil, 0, io.ErrUnexpectedEOF
		}
		return parseBinary(b)
	case len(b) < len(line) && strings.HasPrefix(line, string(b)):
		return nil, 0, io.ErrUnexpectedEOF
	case bytes.HasPrefix(b, []byte(line)):
		return parseLine(b)
	}
	return nil, 0, errProxy
}

// parseLine parses version 1: "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n".
func parseLine(b []byte) (net.Addr, int, error) {
	end := bytes.Index(b[:min(len(b), mostLine)], []byte("\r\n"))
	if end < 0 {
		if len(b) >= mostLine {
			return nil, 0, errProxy
		}
		return nil, 0, io.ErrUnexpectedEOF
	}
	part := strings.Split(string(b[:end]), " ")
	if len(part) >= 2 && part[1] == "UNKNOWN" {
		return nil, end + 2, nil
	}
	if len(part) != 6 || part[1] != "TCP4" && part[1] != "TCP6" {
		return nil, 0, errProxy
	}
	from, err := netip.ParseAddrPort(net.JoinHostPort(part[2], part[4]))
	if err != nil || from.Addr().Is4() != (part[1] == "TCP4") || from.Addr().Zone() != "" {
		return nil, 0, errProxy
	}
	return net.TCPAddrFromAddrPort(from), end + 2, nil
}

// parseBinary parses version 2, of which b has the fixed part at least.
func parseBinary(b []byte) (net.Addr, int, error) {
	size := fixedPart + int(binary.BigEndian.Uint16(b[14:]))
	switch {
	case b[12]>>4 != 2 || size > mostBinary:
		return nil, 0, errProxy
	case len(b) < size:
		return nil, 0, io.ErrUnexpectedEOF
	}
	const local, proxied = 0, 1
	switch b[12] & 0xf {
	case local: // a health check of the balancer
		return nil, size, nil
	case proxied:
	default:
		return nil, 0, errProxy
	}
	const inet, inet6 = 1, 2
	var width int
	switch b[13] >> 4 {
	case inet:
		width = 4
	case inet6:
		width = 16
	default: // unspecified, or a Unix socket
		return nil, size, nil
	}
	if size < fixedPart+2*width+4 {
		return nil, 0, errProxy
	}
	ip, _ := netip.AddrFromSlice(b[fixedPart : fixedPart+width]) // the length fits
	port := binary.BigEndian.Uint16(b[fixedPart+2*width:])
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip.Unmap(), port)), size, nil
}
