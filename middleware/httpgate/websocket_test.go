package httpgate_test

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
)

// echoWebSocket upgrades a request (RFC 6455) and sends back the text frames it gets, until one cannot be read. Its frames
// are shorter than 126 bytes.
func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	for rw.Flush() == nil {
		text, err := readFrame(rw.Reader)
		if err != nil {
			return
		}
		_, _ = rw.Write(append([]byte{0x81, byte(len(text))}, text...))
	}
}

// readFrame reads a short frame, masked or not.
func readFrame(r *bufio.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	var mask [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(r, mask[:]); err != nil {
			return nil, err
		}
	}
	text := make([]byte, head[1]&0x7f)
	_, err := io.ReadFull(r, text)
	for i := range text {
		text[i] ^= mask[i%4]
	}
	return text, err
}

func TestWebSocketThroughReverseProxyEndToEnd(t *testing.T) {
	backPolicy, frontPolicy, clientPolicy := &gatetest.Recorder{}, &gatetest.Recorder{}, &gatetest.Recorder{}
	back, front := middleware(t, nil, backPolicy), middleware(t, nil, frontPolicy)
	returned := make(chan struct{}, 2)
	server := func(h http.Handler) *httptest.Server {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { returned <- struct{}{} }()
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(srv.Close)
		return srv
	}
	backURL, err := url.Parse(server(back.Handler(http.HandlerFunc(echoWebSocket))).URL)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(backURL) },
		Transport: transport(t, nil, nil, clientPolicy),
	}
	srv := server(front.Handler(proxy))

	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(conn, "GET /chat HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	require.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", res.Header.Get("Sec-WebSocket-Accept"))
	for _, text := range []string{"hello", "and again"} {
		frame := []byte{0x81, 0x80 | byte(len(text)), 1, 2, 3, 4}
		for i := range len(text) {
			frame = append(frame, text[i]^frame[2+i%4])
		}
		_, err = conn.Write(frame)
		require.NoError(t, err)
		echo, err := readFrame(r)
		require.NoError(t, err)
		require.Equal(t, text, string(echo))
	}
	require.Zero(t, backPolicy.InFlight())
	require.Zero(t, frontPolicy.InFlight())
	require.Equal(t, []spillway.Outcome{spillway.Success}, clientPolicy.Outcomes(), "the client's part ended with the 101")
	require.Equal(t, int64(1), back.Stats().LongLived)
	require.Equal(t, int64(1), front.Stats().LongLived)

	conn.Close()
	<-returned
	<-returned
	require.Zero(t, back.Stats().LongLived)
	require.Zero(t, front.Stats().LongLived)
	require.Equal(t, []spillway.Outcome{spillway.Ignored}, frontPolicy.Outcomes())
	require.Equal(t, []spillway.Outcome{spillway.Ignored}, backPolicy.Outcomes())
}
