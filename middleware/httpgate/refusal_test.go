package httpgate_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// untouchable is a body that must not be read.
type untouchable struct{ t *testing.T }

func (b untouchable) Read([]byte) (int, error) {
	b.t.Error("the body of a refused request was read")
	return 0, io.EOF
}
func (b untouchable) Close() error { return nil }

func TestRefusedRequestIsAnsweredWithoutRunningOrReadingAnything(t *testing.T) {
	h := httpgate.Handler(shut(), nil)(unreachable(t))
	r := httptest.NewRequest(http.MethodPost, "/", untouchable{t})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)

	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, seconds, 1)
	require.LessOrEqual(t, seconds, 3)
	requireProblem(t, w.Body.Bytes(), 503, "temporary-reduced-capacity")
}

func requireProblem(t *testing.T, body []byte, status int, kind string) {
	t.Helper()
	var problem struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
	}
	require.NoError(t, json.Unmarshal(body, &problem))
	require.Equal(t, status, problem.Status)
	require.Equal(t, "https://iana.org/assignments/http-problem-types#"+kind, problem.Type)
	require.NotEmpty(t, problem.Title)
}

func TestOverQuotaIs429(t *testing.T) {
	w := httptest.NewRecorder()
	httpgate.Handler(spillway.New(refuser{errOverQuota}), nil)(unreachable(t)).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	requireProblem(t, w.Body.Bytes(), 429, "quota-exceeded")
}

func TestHeadRefusalHasNoBody(t *testing.T) {
	h := httpgate.Handler(shut(), nil)(unreachable(t))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/", nil))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Zero(t, w.Body.Len())

	for url, client := range bothProtocols(t, h) {
		res, err := client.Head(url)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
		require.NotEmpty(t, res.Header.Get("Retry-After"))
	}
}

func TestRefusalReachesTheClientWhole(t *testing.T) {
	h := httpgate.Handler(shut(), nil)(unreachable(t))
	for url, client := range bothProtocols(t, h) {
		res, err := client.Get(url)
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
		requireProblem(t, body, 503, "temporary-reduced-capacity")
	}
}

func TestLargePostIsRefusedWithA503NotAReset(t *testing.T) {
	h := httpgate.Handler(shut(), nil)(unreachable(t))
	for url, client := range bothProtocols(t, h) {
		for range 20 {
			res, err := client.Post(url, "application/octet-stream", bytes.NewReader(make([]byte, 1<<20)))
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, res.Body)
			require.NoError(t, err)
			res.Body.Close()
			require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
			require.Equal(t, res.ProtoMajor == 1, res.Close)
		}
	}
}

func TestConnectionIsKeptUnlessTheUnreadBodyIsLong(t *testing.T) {
	h := httpgate.Handler(shut(), nil)(unreachable(t))
	for _, c := range []struct {
		length int64
		closes bool
	}{{0, false}, {1, false}, {256 << 10, false}, {256<<10 + 1, true}, {-1, true}} {
		for major := 1; major <= 2; major++ {
			r := httptest.NewRequest(http.MethodPost, "/", untouchable{t})
			r.ContentLength = c.length
			r.ProtoMajor = major
			w := httptest.NewRecorder()
			h.ServeHTTP(readDeadliner{w}, r)
			require.Equal(t, c.closes && major == 1, w.Header().Get("Connection") == "close", "length %d on HTTP/%d", c.length, major)
			w = httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, c.length != 0 && major == 1, w.Header().Get("Connection") == "close",
				"length %d on HTTP/%d, where nothing ends the wait for a body", c.length, major)
		}
	}
}

// readDeadliner is a recorder that bounds how long a body may take, as the server does.
type readDeadliner struct{ *httptest.ResponseRecorder }

func (readDeadliner) SetReadDeadline(time.Time) error { return nil }

func TestConnectionClosesWhoeverWritesTheRefusal(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", untouchable{t})
	r.ContentLength = -1
	w := httptest.NewRecorder()
	httpgate.WriteRefusal(w, r, errFull)
	require.Equal(t, "close", w.Header().Get("Connection"))

	o := &httpgate.Options{Refuse: func(w http.ResponseWriter, _ *http.Request, _ *spillway.Rejection) { w.WriteHeader(http.StatusTeapot) }}
	w = httptest.NewRecorder()
	httpgate.Handler(shut(), o)(unreachable(t)).ServeHTTP(w, r)
	require.Equal(t, http.StatusTeapot, w.Code)
	require.Equal(t, "close", w.Header().Get("Connection"))
}

// roundTripRaw sends a request that may be incomplete and returns the first response to it.
func roundTripRaw(t *testing.T, h http.Handler, request string) *http.Response {
	t.Helper()
	res, _ := timedRoundTripRaw(t, h, request)
	return res
}

// timedRoundTripRaw also returns how long the answer took.
func timedRoundTripRaw(t *testing.T, h http.Handler, request string) (*http.Response, time.Duration) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	sent := time.Now()
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err, "no answer although the request was refused")
	return res, time.Since(sent)
}

func TestRefusalDoesNotWaitForABodyOfUnknownLength(t *testing.T) {
	res := roundTripRaw(t, httpgate.Handler(shut(), nil)(unreachable(t)),
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n") // and no chunk ever
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.True(t, res.Close)
}

func TestRefusalOfExpectContinueAsksForNoBody(t *testing.T) {
	res := roundTripRaw(t, httpgate.Handler(shut(), nil)(unreachable(t)),
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
}

func TestRefuseReceivesTheSharedRejection(t *testing.T) {
	var got *spillway.Rejection
	m := middleware(t, &httpgate.Options{
		Refuse: func(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection) {
			got = rej
			w.Header().Set("X-Envoy-Overloaded", "true")
			httpgate.WriteRefusal(w, r, rej)
		},
	}, refuser{errOverQuota})
	res := serve(m.Handler(unreachable(t)), "/")
	require.Same(t, errOverQuota, got)
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.Equal(t, "true", res.Header.Get("X-Envoy-Overloaded"))
}

// ill is a Policy that breaks its contract: its refusal is no *Rejection.
type ill struct{ err error }

func (p ill) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, p.err }
func (p ill) Done(spillway.Request, spillway.Ticket, spillway.Result)          {}

func TestRefusalByUnknownOrWrappedErrorIsAnswered(t *testing.T) {
	for want, err := range map[int]error{
		503: errors.New("something else"),
		429: fmt.Errorf("wrapped: %w", errOverQuota),
	} {
		res := serve(middleware(t, nil, ill{err}).Handler(unreachable(t)), "/")
		require.Equal(t, want, res.StatusCode)
	}
}

func TestSharedHeaderValuesSurviveThoseWhoAddToThem(t *testing.T) {
	for range 2 {
		w := httptest.NewRecorder()
		httpgate.WriteRefusal(w, httptest.NewRequest(http.MethodGet, "/", nil), errFull)
		require.Len(t, w.Header()["Cache-Control"], 1)
		for key := range w.Header() {
			w.Header().Add(key, "more")
			w.Header().Set(key, "other")
		}
	}
}

func TestStaleContentLengthIsRemoved(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Length", "3")
	httpgate.WriteRefusal(w, httptest.NewRequest(http.MethodGet, "/", nil), errFull)
	require.Empty(t, w.Header().Get("Content-Length"))
}

func TestProblemIsWhatWriteRefusalWrites(t *testing.T) {
	for _, rej := range []*spillway.Rejection{errFull, errOverQuota} {
		w := httptest.NewRecorder()
		httpgate.WriteRefusal(w, httptest.NewRequest(http.MethodGet, "/", nil), rej)
		header := http.Header{}
		status, body := httpgate.Problem(rej, header.Set)
		require.Equal(t, w.Code, status)
		require.Equal(t, w.Body.String(), body)
		require.NotEmpty(t, header.Get("Retry-After"))
		header.Set("Retry-After", w.Header().Get("Retry-After")) // it differs from one to the next
		require.Equal(t, w.Header(), header)
	}
	status, _ := httpgate.Problem(context.DeadlineExceeded, http.Header{}.Set)
	require.Equal(t, http.StatusServiceUnavailable, status)
}

// retryAfter returns the Retry-After of a refusal that says d.
func retryAfter(d time.Duration) string {
	header := http.Header{}
	httpgate.Problem(&spillway.Rejection{RetryAfter: d}, header.Set)
	return header.Get("Retry-After")
}

func TestRetryAfterIsNeverTooEarlyAndIsSpread(t *testing.T) {
	for _, c := range []struct {
		d           time.Duration
		least, most int
	}{
		{-time.Second, 1, 3},
		{0, 1, 3},
		{1, 1, 3},
		{time.Second, 1, 3},
		{time.Second + 1, 2, 4},
		{90 * time.Second, 90, 120},
		{time.Hour, 3600, 4500},
		{20 * time.Hour, 72000, 90000},
		{24 * time.Hour, 86400, 108000},
		{30 * 24 * time.Hour, 2592000, 2613600},
		{1<<63 - 1, 1 << 30, 1<<30 + 21600},
	} {
		seen := map[string]bool{}
		for range 500 {
			value := retryAfter(c.d)
			seen[value] = true
			seconds, err := strconv.Atoi(value)
			require.NoError(t, err)
			require.GreaterOrEqual(t, seconds, c.least, "for %v", c.d)
			require.LessOrEqual(t, seconds, c.most, "for %v", c.d)
		}
		if c.least < c.most {
			require.Greater(t, len(seen), 2, "clients told %v would come back together", c.d)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add(int64(0))
	f.Add(int64(61 * time.Second))
	f.Add(int64(-1))
	f.Fuzz(func(t *testing.T, d int64) {
		value := retryAfter(time.Duration(d))
		seconds, err := strconv.Atoi(value)
		require.NoError(t, err)
		require.False(t, strings.HasPrefix(value, "0"))
		require.GreaterOrEqual(t, seconds, 1)
		if d <= int64(1<<30*time.Second) {
			require.GreaterOrEqual(t, time.Duration(seconds)*time.Second, time.Duration(d))
		}
	})
}
