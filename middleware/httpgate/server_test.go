package httpgate_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestAdmittedRequestIsServedAsWithoutTheGate(t *testing.T) {
	p := &gatetest.Recorder{}
	h := middleware(t, nil, p).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body)
	}))
	for url, client := range bothProtocols(t, h) {
		res, err := client.Post(url, "text/plain", bytes.NewReader([]byte("echo")))
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, res.StatusCode)
		require.Equal(t, "yes", res.Header.Get("X-Answer"))
		require.Equal(t, "echo", string(body))
	}
	require.Equal(t, []spillway.Outcome{spillway.Success, spillway.Success}, p.Outcomes())
}

func TestResponseControllerWorksOnARealServer(t *testing.T) {
	h := httpgate.Handler(spillway.New(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		for name, err := range map[string]error{
			"SetReadDeadline":  rc.SetReadDeadline(time.Now().Add(time.Minute)),
			"SetWriteDeadline": rc.SetWriteDeadline(time.Now().Add(time.Minute)),
			"EnableFullDuplex": rc.EnableFullDuplex(),
			"Flush":            rc.Flush(),
		} {
			assert.NoError(t, err, name)
		}
		conn, rw, err := rc.Hijack()
		if r.ProtoMajor == 2 {
			assert.ErrorIs(t, err, http.ErrNotSupported)
			_, _ = io.WriteString(w, "body")
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("4\r\nbody\r\n0\r\n\r\n") // the flush began a chunked answer
		_ = rw.Flush()
	}))
	for url, client := range bothProtocols(t, h) {
		res, err := client.Get(url)
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, "body", string(body))
	}
}

func TestWriterOffersWhatTheServersWriterDoes(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, flush := w.(http.Flusher)
		_, hijack := w.(http.Hijacker)
		_, push := w.(http.Pusher)
		_, readFrom := w.(io.ReaderFrom)
		_, str := w.(io.StringWriter)
		fmt.Fprint(w, flush, hijack, push, readFrom, str)
	})
	interfaces := func(url string, client *http.Client) string {
		res, err := client.Get(url)
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return string(body)
	}
	var bare, wrapped []string
	for url, client := range bothProtocols(t, h) {
		bare = append(bare, interfaces(url, client))
	}
	for url, client := range bothProtocols(t, httpgate.Handler(spillway.New(), nil)(h)) {
		wrapped = append(wrapped, interfaces(url, client))
	}
	require.Equal(t, bare, wrapped)
	require.NotEqual(t, bare[0], bare[1], "the two protocols are expected to differ")
}

func TestFileServerWorks(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789"), 50_000)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), content, 0o600))
	h := httpgate.Handler(spillway.New(), nil)(http.FileServer(http.Dir(dir)))
	for url, client := range bothProtocols(t, h) {
		res, err := client.Get(url + "/file")
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, body))
	}
}

func TestNothingIsLeftAfterAStormOfEverything(t *testing.T) {
	p := &gatetest.Recorder{}
	gate := spillway.New(p)
	m, err := httpgate.New(gate, &httpgate.Options{MaxLongLived: 3})
	require.NoError(t, err)
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if open := m.Stats().LongLived; open > 3 {
			t.Errorf("%d long-lived requests are open, the limit is 3", open)
		}
		misbehave(w, r.URL.Query().Get("how"))
	}))
	const workers, requests = 8, 300
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(worker)))
			for range requests {
				oneOfMany(h, rng)
			}
		})
	}
	wg.Wait()
	require.Zero(t, p.InFlight())
	require.Zero(t, gate.Stats().InFlight)
	require.Zero(t, m.Stats().LongLived)
	require.Equal(t, int64(workers*requests), gate.Stats().Admitted+m.Stats().LongLivedRefused)
}

// oneOfMany sends h a request of a random kind from a goroutine of its own, and waits for it to end.
func oneOfMany(h http.Handler, rng *rand.Rand) {
	ways := []string{"answer", "fail", "panic", "goexit", "stream", "switch", "hijack", "stream+panic", "switch+goexit"}
	r := httptest.NewRequest(http.MethodGet, "/?how="+ways[rng.IntN(len(ways))], nil)
	switch rng.IntN(3) {
	case 0:
		r.Header.Set("Accept", "text/event-stream")
	case 1:
		r.Header.Set("Upgrade", "websocket")
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(hijackable{httptest.NewRecorder()}, r)
	})
	wg.Wait()
}

func misbehave(w http.ResponseWriter, how string) {
	switch how {
	case "answer":
		_, _ = io.WriteString(w, "fine")
	case "fail":
		w.WriteHeader(http.StatusInternalServerError)
	case "panic":
		panic(http.ErrAbortHandler)
	case "goexit":
		runtime.Goexit()
	case "stream":
		stream(w)
		stream(w)
	case "stream+panic":
		stream(w)
		panic("boom")
	case "switch":
		w.WriteHeader(http.StatusSwitchingProtocols)
	case "switch+goexit":
		w.WriteHeader(http.StatusSwitchingProtocols)
		runtime.Goexit()
	case "hijack":
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	}
	runtime.Gosched()
}

// hijackable is a recorder that can be hijacked.
type hijackable struct{ *httptest.ResponseRecorder }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, _ := net.Pipe()
	return conn, nil, nil
}
