package httpgate

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// A plain ResponseWriter has no optional interface; it remembers the calls it got.
type plain struct {
	header http.Header
	calls  []string
	status []int
	src    io.Reader
}

func newPlain() *plain { return &plain{header: http.Header{}} }

func (p *plain) call(name string)          { p.calls = append(p.calls, name) }
func (p *plain) Header() http.Header       { return p.header }
func (p *plain) WriteHeader(status int)    { p.call("WriteHeader"); p.status = append(p.status, status) }
func (p *plain) Write([]byte) (int, error) { p.call("Write"); return 11, errWrite }

var (
	errWrite, errFlush, errHijack   = errors.New("write"), errors.New("flush"), errors.New("hijack")
	errReadFrom, errPush, errString = errors.New("readfrom"), errors.New("push"), errors.New("string")
	notified                        = make(chan bool)
)

// A facet has one optional interface beyond plain.
type (
	flusher      struct{ *plain }
	errorFlusher struct{ *plain }
	hijacker     struct {
		*plain
		err error
	}
	readerFrom   struct{ *plain }
	pusher       struct{ *plain }
	stringWriter struct{ *plain }
	notifier     struct{ *plain }
)

func (f flusher) Flush()                    { f.call("Flush") }
func (f errorFlusher) FlushError() error    { f.call("FlushError"); return errFlush }
func (f notifier) CloseNotify() <-chan bool { f.call("CloseNotify"); return notified }
func (f hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	f.call("Hijack")
	return nil, nil, f.err
}
func (f readerFrom) ReadFrom(src io.Reader) (int64, error) {
	f.call("ReadFrom")
	f.src = src
	return 12, errReadFrom
}
func (f pusher) Push(target string, _ *http.PushOptions) error {
	f.call("Push " + target)
	return errPush
}
func (f stringWriter) WriteString(s string) (int, error) {
	f.call("WriteString " + s)
	return 13, errString
}

// rich has every optional interface.
type rich struct {
	*plain
	flusher
	errorFlusher
	hijacker
	readerFrom
	pusher
	stringWriter
	notifier
}

func newRich(hijackErr error) rich {
	p := newPlain()
	return rich{p, flusher{p}, errorFlusher{p}, hijacker{p, hijackErr}, readerFrom{p}, pusher{p}, stringWriter{p}, notifier{p}}
}

// Header, Write and WriteHeader would be ambiguous otherwise.
func (r rich) Header() http.Header         { return r.plain.Header() }
func (r rich) Write(b []byte) (int, error) { return r.plain.Write(b) }
func (r rich) WriteHeader(status int)      { r.plain.WriteHeader(status) }

// interfacesOf lists the optional interfaces of w by name.
func interfacesOf(w http.ResponseWriter) (names []string) {
	add := func(ok bool, name string) {
		if ok {
			names = append(names, name)
		}
	}
	_, ok := w.(http.Flusher)
	add(ok, "Flusher")
	_, ok = w.(interface{ FlushError() error })
	add(ok, "FlushError")
	_, ok = w.(http.Hijacker)
	add(ok, "Hijacker")
	_, ok = w.(io.ReaderFrom)
	add(ok, "ReaderFrom")
	_, ok = w.(http.Pusher)
	add(ok, "Pusher")
	_, ok = w.(io.StringWriter)
	add(ok, "StringWriter")
	_, ok = w.(http.CloseNotifier) //nolint:staticcheck // deprecated, yet asserted by frameworks
	add(ok, "CloseNotifier")
	return names
}

// interfaceNames are in the order of the bits that index the variants.
var interfaceNames = [...]string{"Flusher", "FlushError", "Hijacker", "ReaderFrom", "Pusher", "StringWriter", "CloseNotifier"}

func TestWriterOffersExactlyTheInterfacesOfTheInnerOne(t *testing.T) {
	require.Equal(t, 1<<len(interfaceNames), numVariants)
	for set := range numVariants {
		var want []string
		for bit, name := range interfaceNames {
			if set&(1<<bit) != 0 {
				want = append(want, name)
			}
		}
		inner, x := variants[set]()
		x.inner, x.r = newRich(errHijack), httptest.NewRequest(http.MethodGet, "/", nil)
		require.Equal(t, want, interfacesOf(inner), "variant %b", set)
		outer, _ := wrap(inner, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, want, interfacesOf(outer), "a writer around variant %b", set)
		requireMethodsReachInner(t, outer, x.inner.(rich))
	}
}

func TestEachOptionalInterfaceIsSeenOnItsOwn(t *testing.T) {
	p := newPlain()
	for _, inner := range []http.ResponseWriter{p, flusher{p}, errorFlusher{p}, hijacker{p, nil}, readerFrom{p}, pusher{p},
		stringWriter{p}, notifier{p}, newRich(nil), httptest.NewRecorder()} {
		w, x := wrap(inner, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, interfacesOf(inner), interfacesOf(w), "%T", inner)
		require.Equal(t, inner, w.(unwrapper).Unwrap())
		require.Equal(t, inner, x.inner)
	}
}

// requireMethodsReachInner calls every method of w and requires inner to have got the call and w its results.
func requireMethodsReachInner(t *testing.T, w http.ResponseWriter, inner rich) {
	t.Helper()
	var want []string
	called := func(name string) {
		want = append(want, name)
		require.Equal(t, want, inner.calls)
	}
	n, err := w.Write(nil)
	called("Write")
	require.Equal(t, 11, n)
	require.Equal(t, errWrite, err)
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
		called("Flush")
	}
	if f, ok := w.(flushErrorer); ok {
		require.Equal(t, errFlush, f.FlushError())
		called("FlushError")
	}
	if h, ok := w.(http.Hijacker); ok {
		_, _, err := h.Hijack()
		require.Equal(t, errHijack, err)
		called("Hijack")
	}
	if rf, ok := w.(io.ReaderFrom); ok {
		src := &bytes.Buffer{}
		n, err := rf.ReadFrom(src)
		called("ReadFrom")
		require.Equal(t, int64(12), n)
		require.Equal(t, errReadFrom, err)
		require.Same(t, src, inner.src)
	}
	if p, ok := w.(http.Pusher); ok {
		require.Equal(t, errPush, p.Push("/style.css", nil))
		called("Push /style.css")
	}
	if s, ok := w.(io.StringWriter); ok {
		n, err := s.WriteString("text")
		called("WriteString text")
		require.Equal(t, 13, n)
		require.Equal(t, errString, err)
	}
	if c, ok := w.(closeNotifier); ok {
		require.Equal(t, (<-chan bool)(notified), c.CloseNotify())
		called("CloseNotify")
	}
}

// outcomeOn runs handler on a ResponseWriter and returns how the gate says that its request ended.
func outcomeOn(t *testing.T, inner http.ResponseWriter, handler http.HandlerFunc) spillway.Outcome {
	t.Helper()
	gate := spillway.New()
	Handler(gate, nil)(handler).ServeHTTP(inner, httptest.NewRequest(http.MethodGet, "/", nil))
	s := gate.Stats()
	require.Equal(t, int64(1), s.Succeeded+s.Failed+s.Dropped+s.Ignored)
	switch {
	case s.Succeeded == 1:
		return spillway.Success
	case s.Failed == 1:
		return spillway.Failure
	case s.Dropped == 1:
		return spillway.Dropped
	}
	return spillway.Ignored
}

func TestWhatCommitsAResponseCountsAs200(t *testing.T) {
	commits := map[string]func(w http.ResponseWriter){
		"Write":       func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
		"WriteString": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") },
		"ReadFrom":    func(w http.ResponseWriter) { _, _ = w.(io.ReaderFrom).ReadFrom(&bytes.Buffer{}) },
		"Flush":       func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"FlushError":  func(w http.ResponseWriter) { _ = w.(flushErrorer).FlushError() },
		"controller":  func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
	}
	for name, commit := range commits {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, spillway.Success, outcomeOn(t, newRich(nil), func(w http.ResponseWriter, _ *http.Request) {
				commit(w)
				w.WriteHeader(http.StatusInternalServerError) // too late
			}))
		})
	}
}

func TestFirstFinalStatusWins(t *testing.T) {
	for _, c := range []struct {
		statuses []int
		want     spillway.Outcome
	}{
		{[]int{500, 200}, spillway.Failure},
		{[]int{200, 500}, spillway.Success},
		{[]int{103, 100, 503}, spillway.Dropped},
		{[]int{103, 200}, spillway.Success},
	} {
		inner := newPlain()
		require.Equal(t, c.want, outcomeOn(t, inner, func(w http.ResponseWriter, _ *http.Request) {
			for _, status := range c.statuses {
				w.WriteHeader(status)
			}
		}), "%v", c.statuses)
		require.Equal(t, c.statuses, inner.status, "what the handler wrote goes on unchanged")
	}
}

func TestFileStillReachesReadFrom(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte("content"), 0o600))
	sourceSeenBy := func(wrapped bool) io.Reader {
		inner := newRich(nil)
		var w http.ResponseWriter = inner
		if wrapped {
			w, _ = wrap(inner, httptest.NewRequest(http.MethodGet, "/", nil))
		}
		f, err := os.Open(name)
		require.NoError(t, err)
		defer f.Close()
		_, err = io.Copy(w, f)
		require.ErrorIs(t, err, errReadFrom)
		return inner.src
	}
	require.IsType(t, sourceSeenBy(false), sourceSeenBy(true))
}

// onlyUnwraps has no optional interface but leads to a writer that has.
type onlyUnwraps struct {
	*plain
	to http.ResponseWriter
}

func (u onlyUnwraps) Unwrap() http.ResponseWriter { return u.to }

func (p *plain) SetWriteDeadline(time.Time) error { p.call("SetWriteDeadline"); return nil }

func TestResponseControllerReachesWhatLiesDeeper(t *testing.T) {
	deep := newRich(nil)
	outcome := outcomeOn(t, onlyUnwraps{newPlain(), deep}, func(w http.ResponseWriter, _ *http.Request) {
		assert.Empty(t, interfacesOf(w))
		rc := http.NewResponseController(w)
		assert.Equal(t, errFlush, rc.Flush())
		w.WriteHeader(http.StatusInternalServerError) // too late: the flush sent a 200
		assert.NoError(t, rc.SetWriteDeadline(time.Time{}))
		assert.ErrorIs(t, rc.EnableFullDuplex(), http.ErrNotSupported)
	})
	require.Equal(t, spillway.Success, outcome)
	require.Equal(t, []string{"FlushError"}, deep.calls)

	require.Equal(t, spillway.Ignored, outcomeOn(t, onlyUnwraps{newPlain(), deep}, func(w http.ResponseWriter, _ *http.Request) {
		_, _, err := http.NewResponseController(w).Hijack()
		assert.NoError(t, err)
	}), "a hijack down there leaves the gate as well")
}

func TestResponseControllerSaysWhatIsNotSupported(t *testing.T) {
	for _, inner := range []http.ResponseWriter{newPlain(), onlyUnwraps{newPlain(), newPlain()}} {
		w, _ := wrap(inner, httptest.NewRequest(http.MethodGet, "/", nil))
		rc := http.NewResponseController(w)
		require.ErrorIs(t, rc.Flush(), http.ErrNotSupported)
		_, _, err := rc.Hijack()
		require.ErrorIs(t, err, http.ErrNotSupported)
		require.ErrorIs(t, rc.SetReadDeadline(time.Time{}), http.ErrNotSupported)
	}
}

func TestWritingThroughUnwrapIsNoticed(t *testing.T) {
	require.Equal(t, spillway.Failure, outcomeOn(t, onlyUnwraps{newPlain(), nil}, func(w http.ResponseWriter, _ *http.Request) {
		w = w.(unwrapper).Unwrap()
		w.Header().Set("A", "b")
		w.WriteHeader(http.StatusInternalServerError)
		_, err := w.Write(nil)
		assert.Equal(t, errWrite, err)
	}))
}
