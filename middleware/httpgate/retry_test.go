package httpgate_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// A scripted RoundTripper answers with one status after the other, and then with the last. Status 0 is an error.
type scripted struct {
	status []int
	header http.Header
	sent   []time.Time
	bodies []string
	counts []string
	open   int // bodies of answers that are not closed
}

type countedBody struct {
	io.Reader
	s      *scripted
	closed atomic.Bool
}

func (b *countedBody) Close() error {
	if !b.closed.Swap(true) {
		b.s.open--
	}
	return nil
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	status := s.status[min(len(s.sent), len(s.status)-1)]
	s.sent = append(s.sent, time.Now())
	s.counts = append(s.counts, strings.Join(r.Header["X-Envoy-Attempt-Count"], ","))
	if r.Body != nil {
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		s.bodies = append(s.bodies, string(text))
	}
	if status == 0 {
		return nil, errBroken
	}
	s.open++
	body := &countedBody{Reader: strings.NewReader("answer"), s: s}
	return &http.Response{StatusCode: status, Header: s.header.Clone(), Body: body, Request: r}, nil
}

func request(ctx context.Context, method, body string) *http.Request {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://server.test/", reader)
	if err != nil {
		panic(err)
	}
	return r
}

// run sends r and returns the status, or the error. It checks that everything was given back.
func (s *scripted) run(t *testing.T, r *http.Request, o *httpgate.TransportOptions) (int, error) {
	t.Helper()
	if s.header == nil {
		s.header = http.Header{}
	}
	p := &gatetest.Recorder{}
	rt := transport(t, s, o, p)
	before := r.Header.Clone()
	res, err := rt.RoundTrip(r)
	require.Equal(t, before, r.Header, "the caller's request is not changed")
	require.Equal(t, int64(len(s.sent)-1), rt.Stats().Retries)
	status := 0
	if err == nil {
		require.Same(t, r, res.Request)
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, "answer", string(text))
		res.Body.Close()
		status = res.StatusCode
	}
	require.Zero(t, s.open, "an answer was not closed")
	require.Zero(t, p.InFlight())
	require.Len(t, p.Outcomes(), len(s.sent), "each time passes the gate")
	return status, err
}

func retrying(r httpgate.Retry) *httpgate.TransportOptions {
	return &httpgate.TransportOptions{Retry: &r}
}

func TestRetries(t *testing.T) {
	for name, c := range map[string]struct {
		status []int
		method string
		body   string
		retry  httpgate.Retry
		header http.Header
		want   int // status; 0 is an error
		sent   int
	}{
		"success":             {status: []int{200}, want: 200, sent: 1},
		"refused once":        {status: []int{503, 200}, want: 200, sent: 2},
		"quota once":          {status: []int{429, 200}, want: 200, sent: 2},
		"bad gateway twice":   {status: []int{502, 504, 200}, want: 200, sent: 3},
		"no answer":           {status: []int{0, 200}, want: 200, sent: 2},
		"never an answer":     {status: []int{0}, want: 0, sent: 3},
		"always refused":      {status: []int{503}, want: 503, sent: 3},
		"two attempts":        {status: []int{503}, retry: httpgate.Retry{Attempts: 2}, want: 503, sent: 2},
		"a bug":               {status: []int{500, 200}, want: 500, sent: 1},
		"not found":           {status: []int{404, 200}, want: 404, sent: 1},
		"a post":              {status: []int{503, 200}, method: "POST", body: "text", want: 503, sent: 1},
		"a post without body": {status: []int{0, 200}, method: "POST", want: 0, sent: 1},
		"a put":               {status: []int{503, 200}, method: "PUT", body: "text", want: 200, sent: 2},
		"a delete":            {status: []int{503, 200}, method: "DELETE", want: 200, sent: 2},
		"a post with a key": {
			status: []int{503, 0, 200}, method: "POST", body: "text", header: http.Header{"Idempotency-Key": {"k"}}, want: 200, sent: 3,
		},
		"what the caller says": {
			status: []int{503, 200}, method: "POST", body: "text", want: 200, sent: 2,
			retry: httpgate.Retry{Idempotent: func(*http.Request) bool { return true }},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{status: c.status}
				method := c.method
				if method == "" {
					method = http.MethodGet
				}
				r := request(t.Context(), method, c.body)
				maps.Copy(r.Header, c.header)
				status, err := s.run(t, r, retrying(c.retry))
				require.Equal(t, c.want == 0, err != nil)
				require.Equal(t, c.want, status)
				require.Len(t, s.sent, c.sent)
				require.Equal(t, []string{"", "2", "3"}[:c.sent], s.counts)
				for _, body := range s.bodies {
					require.Equal(t, c.body, body)
				}
			})
		})
	}
}

// A body that cannot be made again is sent once.
func TestBodiesThatCannotBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{status: []int{503}}
		r := request(t.Context(), http.MethodPut, "text")
		r.GetBody = nil
		status, err := s.run(t, r, retrying(httpgate.Retry{}))
		require.NoError(t, err)
		require.Equal(t, 503, status)
		require.Len(t, s.sent, 1)

		s = &scripted{status: []int{503}}
		r = request(t.Context(), http.MethodPut, "text")
		r.GetBody = func() (io.ReadCloser, error) { return nil, errBroken }
		status, err = s.run(t, r, retrying(httpgate.Retry{}))
		require.NoError(t, err)
		require.Equal(t, 503, status)
		require.Len(t, s.sent, 1)

		s = &scripted{status: []int{0}}
		r = request(t.Context(), http.MethodPut, "")
		r.Body, r.ContentLength = io.NopCloser(&failingReader{}), -1
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(&failingReader{}), nil }
		_, err = s.run(t, r, retrying(httpgate.Retry{}))
		require.Error(t, err)
		require.Len(t, s.sent, 1, "the caller's own body broke it")
	})
}

type failingReader struct{}

func (*failingReader) Read([]byte) (int, error) { return 0, errBroken }

// The wait is random from nothing to Backoff, which doubles up to MaxBackoff.
func TestBackoffHasFullJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sum, longest [4]time.Duration
		const runs = 400
		for range runs {
			s := &scripted{status: []int{503}}
			budget := spillway.Must(httpgate.NewRetryBudget(&httpgate.RetryBudgetOptions{MaxTokens: 1000}))
			o := retrying(httpgate.Retry{Attempts: 5, Backoff: 100 * time.Millisecond, MaxBackoff: 300 * time.Millisecond})
			o.Budget = budget
			_, err := s.run(t, request(t.Context(), http.MethodGet, ""), o)
			require.NoError(t, err)
			for i := range sum {
				wait := s.sent[i+1].Sub(s.sent[i])
				sum[i] += wait
				longest[i] = max(longest[i], wait)
			}
		}
		for i, most := range []float64{0.1, 0.2, 0.3, 0.3} {
			require.InDelta(t, most/2, sum[i].Seconds()/runs, most/10)
			require.InDelta(t, most, longest[i].Seconds(), most/20)
		}
	})
}

// A retry does not come before the server wants it, and not at all if that is too late.
func TestRetriesHonourTheDelay(t *testing.T) {
	for name, c := range map[string]struct {
		after   string
		timeout time.Duration
		sent    int
		within  [2]time.Duration
	}{
		"two seconds":               {"2", time.Minute, 2, [2]time.Duration{2 * time.Second, 2100 * time.Millisecond}},
		"longer than MaxBackoff":    {"11", time.Minute, 1, [2]time.Duration{}},
		"longer than the deadline":  {"5", 4 * time.Second, 1, [2]time.Duration{}},
		"a day, from a liar":        {"99999999999", time.Hour, 1, [2]time.Duration{}},
		"in the past, from a liar":  {"Sat, 21 Nov 1998 12:00:30 GMT", time.Minute, 2, [2]time.Duration{0, 100 * time.Millisecond}},
		"not a delay, from a liar":  {"-5", time.Minute, 2, [2]time.Duration{0, 100 * time.Millisecond}},
		"no longer than MaxBackoff": {"9", time.Minute, 2, [2]time.Duration{9 * time.Second, 9100 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				s := &scripted{status: []int{503, 200}, header: http.Header{"Retry-After": {c.after}}}
				began := time.Now()
				status, err := s.run(t, request(ctx, http.MethodGet, ""), retrying(httpgate.Retry{}))
				require.NoError(t, err)
				require.Len(t, s.sent, c.sent)
				took := time.Since(began)
				require.True(t, took >= c.within[0] && took <= c.within[1], "%v", took)
				require.Equal(t, map[int]int{1: 503, 2: 200}[c.sent], status)
			})
		})
	}
}

func TestNoRetryIfEnvoySaysSo(t *testing.T) {
	s := &scripted{status: []int{503}, header: http.Header{"X-Envoy-Overloaded": {"true"}}}
	_, err := s.run(t, request(t.Context(), http.MethodGet, ""), retrying(httpgate.Retry{}))
	require.NoError(t, err)
	require.Len(t, s.sent, 1)
}

// A caller that leaves during the wait is not kept.
func TestRetriesEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		s := &scripted{status: []int{503}, header: http.Header{"Retry-After": {"5"}}}
		began := time.Now()
		_, err := s.run(t, request(ctx, http.MethodPut, "text"), retrying(httpgate.Retry{}))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, time.Second, time.Since(began))
		require.Len(t, s.sent, 1)
	})
}

// With a server that is down, retries soon end; the budget is shared between clients.
func TestRetriesKeepTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := spillway.Must(httpgate.NewRetryBudget(nil))
		s := &scripted{status: []int{503}, header: http.Header{}}
		for range 2 {
			o := retrying(httpgate.Retry{})
			o.Budget = budget
			rt := transport(t, s, o)
			for range 50 {
				res, err := rt.RoundTrip(request(t.Context(), http.MethodGet, ""))
				require.NoError(t, err)
				res.Body.Close()
			}
		}
		require.InDelta(t, 104, len(s.sent), 2, "100 first attempts, and few others")

		own := transport(t, s, retrying(httpgate.Retry{}))
		s.sent = nil
		for range 50 {
			res, err := own.RoundTrip(request(t.Context(), http.MethodGet, ""))
			require.NoError(t, err)
			res.Body.Close()
		}
		require.InDelta(t, 54, len(s.sent), 2, "without a Budget a Transport has its own")
	})
}

// What this side refuses is not asked for again.
func TestRefusalsOfOurOwnAreNotRetried(t *testing.T) {
	rt := transport(t, unsent(t), retrying(httpgate.Retry{}), refuser{errFull})
	_, err := rt.RoundTrip(request(t.Context(), http.MethodGet, ""))
	require.ErrorIs(t, err, spillway.ErrRejected)
	require.Zero(t, rt.Stats().Retries)

	nested := transport(t, failing(errFull), retrying(httpgate.Retry{}))
	_, err = nested.RoundTrip(request(t.Context(), http.MethodGet, ""))
	require.ErrorIs(t, err, spillway.ErrRejected)
	require.Zero(t, nested.Stats().Retries)
}

// An answer that does not end does not keep the retry.
func TestAnswersThatDoNotEndAreClosed(t *testing.T) {
	var calls atomic.Int64
	stalled := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-stalled:
			}
		}
	}))
	defer srv.Close()
	defer close(stalled)
	client := &http.Client{Transport: transport(t, nil, retrying(httpgate.Retry{})), Timeout: 30 * time.Second}
	res, err := client.Get(srv.URL)
	require.NoError(t, err)
	res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, int64(2), calls.Load())
}

func TestInvalidRetriesAreNamed(t *testing.T) {
	for want, r := range map[string]httpgate.Retry{
		"httpgate: Retry.Attempts: must be from 2 to 10, got 1":                                          {Attempts: 1},
		"httpgate: Retry.Attempts: must be from 2 to 10, got 11":                                         {Attempts: 11},
		"httpgate: Retry.Backoff: must be at least 1ms and at most a year, got 1µs":                      {Backoff: time.Microsecond},
		"httpgate: Retry.Backoff: must be at least 1ms and at most a year, got -1s":                      {Backoff: -time.Second},
		"httpgate: Retry.MaxBackoff: must be at least Backoff (1s) and at most a year, got 999ms":        {Backoff: time.Second, MaxBackoff: 999 * time.Millisecond},
		"httpgate: Retry.MaxBackoff: must be at least Backoff (100ms) and at most a year, got -1ns":      {MaxBackoff: -1},
		"httpgate: Retry.MaxBackoff: must be at least Backoff (100ms) and at most a year, got 8761h0m0s": {MaxBackoff: 8761 * time.Hour},
	} {
		_, err := httpgate.NewTransport(spillway.New(), nil, retrying(r))
		require.EqualError(t, err, want)
	}
	o := retrying(httpgate.Retry{Backoff: time.Minute})
	_, err := httpgate.NewTransport(spillway.New(), nil, o)
	require.NoError(t, err, "MaxBackoff is at least Backoff")
	require.Zero(t, o.Retry.Attempts, "the caller's options are not changed")
	require.Nil(t, o.Budget)
}
