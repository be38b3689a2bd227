package upstream

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/orca"
)

// trailer is the field in which gRPC sends a load report.
const trailer = orca.Header + "-Bin"

// watch reads the load report in the trailer of an answer of gRPC, when its body ends. It removes the report unless pass is set.
func (b *backend) watch(res *http.Response, pass bool) {
	if !strings.HasPrefix(first(res.Header["Content-Type"]), "application/grpc") {
		return
	}
	b.takeBinary(res.Header, pass) // an answer without messages has its trailer in the header
	if _, upgraded := res.Body.(io.ReadWriteCloser); upgraded {
		return // such an answer has no trailer
	}
	res.Body = &watched{ReadCloser: res.Body, b: b, res: res, pass: pass}
}

// takeBinary reads a report in base64, with padding or without.
func (b *backend) takeBinary(h http.Header, pass bool) {
	field := h[trailer]
	if len(field) == 1 {
		text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(field[0], "="))
		if l, ok := orca.ParseBinary(string(text)); ok && err == nil {
			b.report.set(l, time.Now())
		}
	}
	if !pass {
		delete(h, trailer)
	}
}

// A watched is a body whose end brings the trailer.
type watched struct {
	io.ReadCloser
	b    *backend
	res  *http.Response
	pass bool
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		w.b.takeBinary(w.res.Trailer, w.pass)
	}
	return n, err
}
