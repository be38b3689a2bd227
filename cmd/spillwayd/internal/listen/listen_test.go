package listen

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// patience is how long a test waits for what happens at once on a free machine.
const patience = 10 * time.Second

func listenOn(t *testing.T, o Options) *Listener {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l, err := New(inner, o)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", l.Addr().String(), patience)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func accept(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	got := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			got <- c
		}
	}()
	select {
	case c := <-got:
		t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(patience):
		require.FailNow(t, "no connection was accepted")
		return nil
	}
}

func TestMaxConnections(t *testing.T) {
	l := listenOn(t, Options{MaxConnections: 2})
	for range 3 {
		dial(t, l)
	}
	first := accept(t, l)
	accept(t, l)
	require.Equal(t, int64(2), l.Counts().Open, "the third waits in the kernel")
	require.NoError(t, first.Close())
	require.Error(t, first.Close(), "a second Close gives no second seat back")
	accept(t, l)
	require.Equal(t, Counts{Open: 2, Accepted: 3}, l.Counts())
}

func TestMaxPerClient(t *testing.T) {
	l := listenOn(t, Options{MaxPerClient: 2})
	for range 2 {
		dial(t, l)
		accept(t, l)
	}
	extra := dial(t, l)
	require.NoError(t, extra.SetReadDeadline(time.Now().Add(patience)))
	_, err := extra.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the third is closed at once")
	require.Eventually(t, func() bool { return l.Counts() == Counts{Open: 2, Accepted: 3, OverClient: 1} }, patience, time.Millisecond,
		"the client sees the end before the seat is given back")
	l.clients.mu.Lock()
	defer l.clients.mu.Unlock()
	require.Len(t, l.clients.open, 1)
}

func TestAcceptRate(t *testing.T) {
	l := listenOn(t, Options{AcceptRate: limiter.Per(1, time.Hour)})
	dial(t, l)
	dial(t, l)
	accept(t, l)
	require.Equal(t, int64(1), l.Counts().Accepted, "the second waits in the kernel")
	require.NoError(t, l.Close(), "Close does not wait for the rate")
}

func TestCloseEndsAccept(t *testing.T) {
	l := listenOn(t, Options{})
	ended := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-ended, net.ErrClosed)
}

func TestProxyProtocol(t *testing.T) {
	l := listenOn(t, Options{ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, MaxPerClient: 1})
	silent := dial(t, l) // must not hold up others
	_, err := io.WriteString(dial(t, l), "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\nGET")
	require.NoError(t, err)
	c := accept(t, l)
	require.Equal(t, "192.0.2.1:56324", c.RemoteAddr().String())
	text := make([]byte, 3)
	_, err = io.ReadFull(c, text)
	require.NoError(t, err)
	require.Equal(t, "GET", string(text))

	wrong := dial(t, l)
	_, err = io.WriteString(wrong, "GET / HTTP/1.1\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, wrong.SetReadDeadline(time.Now().Add(patience)))
	_, err = wrong.Read(text)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "a peer that must send a header and does not is cut off")
	require.NoError(t, l.Close(), "Close does not wait for silent peers")
	silent.Close()
}

func TestParseProxy(t *testing.T) {
	const sig = "\r\n\r\n\x00\r\nQUIT\n"
	v4 := sig + "\x21\x11\x00\x0c" + "\xc0\x00\x02\x01" + "\xc0\x00\x02\x02" + "\xdc\x04\x01\xbb"
	v6 := sig + "\x21\x21\x00\x26" + "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02" + "\xdc\x04\x01\xbb" + "\x04\x00"
	for header, want := range map[string]string{
		"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n":     "192.0.2.1:56324",
		"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n": "[2001:db8::1]:56324",
		"PROXY UNKNOWN\r\n":         "",
		"PROXY UNKNOWN a b c d\r\n": "",
		v4:                          "192.0.2.1:56324",
		v6:                          "[2001:db8::1]:56324",
		sig + "\x20\x00\x00\x00":    "",
		sig + "\x21\x31\x00\x02ab":  "",
	} {
		from, size, err := parseProxy([]byte(header + "rest"))
		require.NoError(t, err, "%q", header)
		require.Equal(t, len(header), size, "%q", header)
		if want == "" {
			require.Nil(t, from, "%q", header)
		} else {
			require.Equal(t, want, from.String(), "%q", header)
		}
		for n := range len(header) {
			_, _, err := parseProxy([]byte(header[:n]))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "the first %d bytes of %q", n, header)
		}
	}
	for _, bad := range []string{
		"GET / HTTP/1.1\r\n", "PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n", "PROXY TCP4 2001:db8::1 ::1 1 2\r\n", "PROXY TCP6 192.0.2.1 ::1 1 2\r\n",
		"PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n", "PROXY TCP4 192.0.2.1 192.0.2.2 99999 2\r\n", "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
		"PROXY " + string(make([]byte, 200)), sig + "\x11\x11\x00\x0c", sig + "\x21\x11\x00\x04abcd", sig + "\x22\x11\x00\x00", sig + "\x21\x11\xff\xff",
	} {
		_, _, err := parseProxy([]byte(bad))
		require.ErrorIs(t, err, errProxy, "%q", bad)
	}
}

func FuzzParseProxy(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"))
	f.Add([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02\xdc\x04\x01\xbb"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, size, err := parseProxy(b)
		if err == nil && (size <= 0 || size > len(b)) {
			t.Fatalf("size %d of %d bytes", size, len(b))
		}
	})
}

// writePair writes a certificate for name, and its key.
func writePair(t *testing.T, cert, key, name string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	text, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text}), 0o600))
}

func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	_, err := NewCertificate(cert, key, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "tls.crt")
	writePair(t, cert, key, "one.test")
	c, err := NewCertificate(cert, key, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	name := func() string {
		c.checked.Store(0) // as if a second had passed
		pair, err := c.Get(nil)
		require.NoError(t, err)
		return pair.Leaf.Subject.CommonName
	}
	require.Equal(t, "one.test", name())
	require.NoError(t, os.WriteFile(key, []byte("half a key"), 0o600))
	require.Equal(t, "one.test", name(), "the last good pair stays")
	writePair(t, cert, key, "second.test")
	require.Equal(t, "second.test", name())
}

// A deadlines notes the deadlines of writes.
type deadlines struct {
	net.Conn
	set []time.Time
}

func (d *deadlines) Write(p []byte) (int, error) { return len(p), nil }

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

func TestDeadlinesOfWritesAreRenewedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 5 * time.Second
		inner := new(deadlines)
		c := &conn{Conn: inner, l: &Listener{began: time.Now(), o: Options{WriteTimeout: most}}}
		write := func() {
			t.Helper()
			_, err := c.Write([]byte("a"))
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Until(inner.set[len(inner.set)-1]), most*9/10)
		}
		time.Sleep(time.Second)
		for range 100 { // ten seconds
			write()
			time.Sleep(100 * time.Millisecond)
		}
		require.Len(t, inner.set, 17)
		write()
		require.NoError(t, c.SetWriteDeadline(time.Time{})) // as the server does after the handshake of TLS
		write()
		Release(c)
		_, err := c.Write([]byte("a"))
		require.NoError(t, err)
		require.Zero(t, inner.set[len(inner.set)-1], "no deadline")
	})
}
