package httpgate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/stats"
)

const overloadHeader = "Spillway-Overload"

// A holding policy is a Recorder that asks clients to hold back, like a shedder.
type holding struct {
	gatetest.Recorder

	level, share atomic.Int64 // the share in thousandths
}

func (p *holding) Metrics() iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		_ = yield(stats.Metric{Name: "spillway.shedder.hold_back_at", Value: float64(p.level.Load())}) &&
			yield(stats.Metric{Name: "spillway.shedder.hold_back", Value: float64(p.share.Load()) / 1000})
	}
}

func TestServersTellClients(t *testing.T) {
	p := &holding{}
	o := &httpgate.Options{TellClients: true}
	ways := map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"status":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) },
		"write":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("text")) },
		"string":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") },
		"flush":   func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() },
		"copy": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, io.LimitReader(strings.NewReader("text"), 4))
		},
		"foreign": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(overloadHeader, "level=9")
			_, _ = io.WriteString(w, "text")
		},
	}
	mux := http.NewServeMux()
	for name, h := range ways {
		mux.HandleFunc("/"+name, h)
	}
	srv := httptest.NewServer(middleware(t, o, p).Handler(mux))
	defer srv.Close()
	field := func(name string) []string {
		res, err := srv.Client().Get(srv.URL + "/" + name)
		require.NoError(t, err)
		res.Body.Close()
		return res.Header[overloadHeader]
	}
	p.Refuse(errFull)
	require.Regexp(t, `^level=0, reduce=0, valid=10000, seq=1, src="[a-z0-9]{8}"$`, field("nothing")[0], "each refusal has it")
	p.Refuse(nil)
	without := 0
	for range 20 {
		if got := field("foreign"); got == nil {
			without++
		} else {
			require.Len(t, got, 1)
			require.NotEqual(t, "level=9", got[0], "that of another server is not passed on")
		}
	}
	require.Greater(t, without, 5, "a calm server says it now and then")

	p.level.Store(-1)
	p.share.Store(400)
	require.Eventually(t, func() bool {
		p.Refuse(errFull)
		defer p.Refuse(nil)
		return strings.HasPrefix(field("nothing")[0], "level=-1, reduce=0.4, valid=2000, seq=")
	}, 10*time.Second, 10*time.Millisecond, "it is rendered once per 100 ms")
	for name := range ways {
		got := field(name)
		require.Len(t, got, 1, name)
		require.Contains(t, got[0], "level=-1, reduce=0.4, ", name)
	}

	quiet := httptest.NewServer(middleware(t, nil, p).Handler(mux))
	defer quiet.Close()
	res, err := quiet.Client().Get(quiet.URL + "/write")
	require.NoError(t, err)
	res.Body.Close()
	require.NotContains(t, res.Header, overloadHeader, "only if its user turned it on")
}

func TestServersTellEnvoy(t *testing.T) {
	for refusal, want := range map[*spillway.Rejection]string{errFull: "true", errOverQuota: "", nil: ""} {
		p := &gatetest.Recorder{}
		p.Refuse(refusal)
		h := middleware(t, &httpgate.Options{TellEnvoy: true}, p).Handler(answer(http.StatusOK))
		require.Equal(t, want, serve(h, "/").Header.Get("X-Envoy-Overloaded"))
	}
	require.Empty(t, serve(middleware(t, nil, refuser{errFull}).Handler(answer(http.StatusOK)), "/").Header.Get("X-Envoy-Overloaded"))
}

// byPriority returns options of a client that listens to host and takes priorities from the path: /-4, /0.
func byPriority(host string) *httpgate.TransportOptions {
	return &httpgate.TransportOptions{
		ListenTo: []string{host},
		Request: func(r *http.Request) spillway.Request {
			var p int
			_, _ = fmt.Sscanf(r.URL.Path, "/%d", &p)
			return spillway.Request{Priority: spillway.Priority(p)}
		},
	}
}

// A real server under a real client: what the server asks for is not sent, by priority.
func TestClientsListen(t *testing.T) {
	p := &holding{}
	var reached atomic.Int64
	inner := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	srv := httptest.NewServer(middleware(t, &httpgate.Options{TellClients: true}, p).Handler(inner))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	rt := transport(t, srv.Client().Transport, byPriority(host))
	client := &http.Client{Transport: rt}
	send := func(times int, path string) (n int) {
		for range times {
			res, err := client.Get(srv.URL + path)
			if errors.Is(err, spillway.ErrRejected) {
				continue
			}
			require.NoError(t, err)
			require.NotContains(t, res.Header, overloadHeader, "the client has read it")
			res.Body.Close()
			n++
		}
		return n
	}
	sent := func(path string) int { return send(300, path) }
	require.Equal(t, 300, sent("/-4"))
	p.share.Store(500)
	time.Sleep(120 * time.Millisecond) // a report lasts 100 ms
	p.Refuse(errFull)                  // an answer that has it for certain
	send(1, "/1")
	p.Refuse(nil)
	before := reached.Load()
	require.LessOrEqual(t, sent("/-4"), 10, "lower priorities: only probes")
	require.InDelta(t, 150, sent("/0"), 60)
	require.Equal(t, 300, sent("/4"))
	require.Equal(t, 900-(reached.Load()-before), rt.Stats().HeldBack+rt.Stats().Throttled, "%+v", rt.Stats())

	deaf := transport(t, srv.Client().Transport, byPriority("other.example"))
	client.Transport = deaf
	require.Equal(t, 300, func() (n int) {
		for range 300 {
			res, err := client.Get(srv.URL + "/-4")
			require.NoError(t, err)
			require.Contains(t, res.Header, overloadHeader)
			res.Body.Close()
			n++
		}
		return n
	}(), "hosts that are not listed say nothing to this client")
}

// A proxy does not pass on what its backend says about itself.
func TestProxiesKeepTheFieldToThemselves(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(overloadHeader, `level=0, reduce=0.5, valid=2000, seq=1, src="backend"`)
	}))
	defer backend.Close()
	to, err := url.Parse(backend.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = transport(t, nil, &httpgate.TransportOptions{ListenTo: []string{to.Host}})
	front := httptest.NewServer(proxy)
	defer front.Close()
	res, err := front.Client().Get(front.URL)
	require.NoError(t, err)
	res.Body.Close()
	require.NotContains(t, res.Header, overloadHeader)
}

// A server that lies holds its clients back for 10 s after its last lie, and gets a probe each second.
func TestServersThatLie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lie = `level=999999999999999, reduce=1, valid=999999999999999, seq=999999999999999, src="liar"`
		began := time.Now()
		var sent []time.Duration
		base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
			sent = append(sent, time.Since(began))
			h := http.Header{}
			if len(sent) < 30 {
				h.Set(overloadHeader, lie)
			}
			return &http.Response{StatusCode: http.StatusOK, Header: h, Body: http.NoBody, Request: r}, nil
		})
		rt := transport(t, base, &httpgate.TransportOptions{ListenTo: []string{"server.test"}})
		for range 600 {
			res, err := rt.RoundTrip(outgoing(t.Context(), nil))
			if err == nil {
				res.Body.Close()
			} else {
				require.ErrorIs(t, err, spillway.ErrRejected)
			}
			time.Sleep(50 * time.Millisecond)
		}
		for i, at := range sent[1:11] {
			require.InDelta(t, float64(i), at.Seconds(), 0.11, "a probe a second: the same lie again is no news")
		}
		require.InDelta(t, 11+20*20, len(sent), 5, "after 10 s everything is sent")
	})
}

func TestAllocationsOfARequestHeldBack(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		h := http.Header{overloadHeader: {`level=9, reduce=0.5, valid=10000, seq=1, src="a"`}}
		return &http.Response{StatusCode: http.StatusOK, Header: h, Body: http.NoBody, Request: r}, nil
	})
	rt := transport(t, base, &httpgate.TransportOptions{ListenTo: []string{"server.test"}})
	r := outgoing(t.Context(), nil)
	for range 2 {
		if res, err := rt.RoundTrip(r); err == nil {
			res.Body.Close()
		}
	}
	_, err := rt.RoundTrip(r)
	require.ErrorIs(t, err, spillway.ErrRejected)
	require.Less(t, testing.AllocsPerRun(1000, func() { _, _ = rt.RoundTrip(r) }), 0.1, "but for a probe")
}

func TestInvalidListenToIsNamed(t *testing.T) {
	for _, host := range []string{"", "https://a.example", "a.example/", "A.example", "a b", "u@a.example", "a.example:443", "a.example:80", "a.example:", "a.example."} {
		_, err := httpgate.NewTransport(spillway.New(), nil, &httpgate.TransportOptions{ListenTo: []string{"b.example", host}})
		require.EqualError(t, err, fmt.Sprintf(
			`httpgate: ListenTo[1]: must be a host as HostKey returns it, such as "api.example" or "127.0.0.1:8080", got %q`, host))
	}
}

// The body of a request that is held back is closed.
func TestHeldBackBodiesAreClosed(t *testing.T) {
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		h := http.Header{overloadHeader: {`level=9, reduce=0.5, valid=10000, seq=1, src="a"`}}
		return &http.Response{StatusCode: http.StatusOK, Header: h, Body: http.NoBody, Request: r}, nil
	})
	rt := transport(t, base, &httpgate.TransportOptions{ListenTo: []string{"server.test"}})
	for range 5 {
		body := newBody("text", io.EOF)
		res, err := rt.RoundTrip(outgoing(context.Background(), body))
		if err != nil {
			require.Positive(t, body.closed)
			return
		}
		res.Body.Close()
	}
	t.Fatal("nothing was held back")
}
