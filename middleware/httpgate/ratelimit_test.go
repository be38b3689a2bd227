package httpgate_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

const never = time.Duration(math.MaxInt64)

// A quoter is a limit that reports its tokens.
type quoter interface {
	Quota(now time.Time, r spillway.Request) spillway.Quota
}

// quotasOf returns the methods Quota of limits.
func quotasOf(limits ...quoter) (quotas []httpgate.QuotaFunc) {
	for _, l := range limits {
		quotas = append(quotas, l.Quota)
	}
	return quotas
}

// A quota is a quoter that always returns the same figures.
type quota struct {
	name             string
	limit, remaining int64
	window, reset    time.Duration
}

func (q quota) Quota(time.Time, spillway.Request) spillway.Quota {
	return spillway.Quota{Name: q.name, Limit: q.limit, Remaining: q.remaining, Window: q.window, Reset: q.reset}
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// tell returns what a RateLimit of the given quotas writes, and the error that it returns.
func tell(err error, r spillway.Request, quotas ...quoter) (http.Header, error) {
	h := http.Header{}
	l := &httpgate.RateLimit{Limits: quotasOf(quotas...), Draft: true, X: true}
	err = l.Set(h, epoch, r, err)
	return h, err
}

func TestRateLimitFields(t *testing.T) {
	type q = quota
	for name, c := range map[string]struct {
		quotas        []quoter
		policy, limit string
		x             string // limit, remaining and reset
	}{
		"one": {
			[]quoter{q{"default", 100, 50, 10 * time.Second, 30 * time.Second}},
			`"default";q=100;w=10`, `"default";r=50;t=30`, "100 50 30",
		},
		"three": {
			[]quoter{
				q{"second", 10, 7, time.Second, 100 * time.Millisecond},
				q{"minute", 100, 3, time.Minute, 7 * time.Second},
				q{"day", 5000, 4711, 24 * time.Hour, time.Hour},
			},
			`"second";q=10;w=1, "minute";q=100;w=60, "day";q=5000;w=86400`,
			`"second";r=7;t=1, "minute";r=3;t=7, "day";r=4711;t=3600`, "100 3 7",
		},
		"equal remains": {
			[]quoter{q{"a", 1, 0, time.Second, time.Second}, q{"b", 2, 0, time.Minute, time.Minute}, q{"c", 3, 0, time.Second, time.Second}},
			`"a";q=1;w=1, "b";q=2;w=60, "c";q=3;w=1`, `"a";r=0;t=1, "b";r=0;t=60, "c";r=0;t=1`, "2 0 60",
		},
		"full": {
			[]quoter{q{"full", 5, 5, time.Second, 0}}, `"full";q=5;w=1`, `"full";r=5;t=0`, "5 5 0",
		},
		"no window, no more": {
			[]quoter{q{"grant", 5, 2, 0, never}}, `"grant";q=5`, `"grant";r=2`, "5 2 -",
		},
		"never refilled": {
			[]quoter{q{"grant", 5, 2, never, never}}, `"grant";q=5`, `"grant";r=2`, "5 2 -",
		},
		"windows of parts of a second are told at their rate": {
			[]quoter{
				q{"burst 20 of 100/s", 20, 19, 200 * time.Millisecond, 10 * time.Millisecond},
				q{"1 of 3/s", 1, 1, 333333334, 0},
				q{"1 of 2.5/s", 1, 1, 400 * time.Millisecond, 0},
				q{"5 of 2/s", 5, 5, 2500 * time.Millisecond, 0},
				q{"1e6 of 1e9/s", 1e6, 1e6, time.Millisecond, 0},
			},
			`"burst 20 of 100/s";q=100;w=1, "1 of 3/s";q=3;w=1, "1 of 2.5/s";q=2;w=1, "5 of 2/s";q=6;w=3, "1e6 of 1e9/s";q=1000000000;w=1`,
			`"burst 20 of 100/s";r=19;t=1, "1 of 3/s";r=1;t=0, "1 of 2.5/s";r=1;t=0, "5 of 2/s";r=5;t=0, "1e6 of 1e9/s";r=1000000;t=0`,
			"3 1 0",
		},
		"what cannot be": {
			[]quoter{q{"odd", -1, -2, -time.Second, -time.Second}}, `"odd";q=0`, `"odd";r=0;t=0`, "0 0 0",
		},
		"beyond integers of structured fields": {
			[]quoter{q{"vast", math.MaxInt64, math.MaxInt64, time.Nanosecond, time.Second}},
			`"vast";q=999999999999999;w=1`, `"vast";r=999999999999999;t=1`, "999999999999999 999999999999999 1",
		},
		"beyond integers of structured fields, no window": {
			[]quoter{q{"vast", math.MaxInt64, math.MaxInt64, 0, never}},
			`"vast";q=999999999999999`, `"vast";r=999999999999999`, "999999999999999 999999999999999 -",
		},
		"beyond strings of structured fields": {
			[]quoter{q{"a\"b\\c\r\nSet-Cookie: x\u00e9", 1, 1, time.Second, 0}},
			`"a\"b\\c??Set-Cookie: x??";q=1;w=1`, `"a\"b\\c??Set-Cookie: x??";r=1;t=0`, "1 1 0",
		},
		"nothing to tell of one": {
			[]quoter{q{"", 9, 9, time.Second, 0}, q{"b", 1, 1, time.Second, 0}}, `"b";q=1;w=1`, `"b";r=1;t=0`, "1 1 0",
		},
		"nothing to tell": {[]quoter{q{}, &limiter.Keyed{}}, "-", "-", "- - -"},
	} {
		h, err := tell(nil, spillway.Request{}, c.quotas...)
		require.NoError(t, err, name)
		require.Equal(t, c.policy, field(h, "RateLimit-Policy"), name)
		require.Equal(t, c.limit, field(h, "RateLimit"), name)
		require.Equal(t, c.x, field(h, "X-RateLimit-Limit")+" "+field(h, "X-RateLimit-Remaining")+" "+field(h, "X-RateLimit-Reset"), name)
	}
}

// field returns the only value of a field, or - if there is none.
func field(h http.Header, name string) string {
	switch v := h.Values(name); len(v) {
	case 0:
		return "-"
	case 1:
		return v[0]
	default:
		return fmt.Sprint(v)
	}
}

func TestRetryAfterIsNotEarlierThanAnyReset(t *testing.T) {
	type q = quota
	rej := &spillway.Rejection{Policy: "second", Reason: "rate exceeded", RetryAfter: 1500 * time.Millisecond, OverQuota: true}
	for name, c := range map[string]struct {
		quotas []quoter
		cost   int
		limit  string
		want   time.Duration
	}{
		"as told":            {[]quoter{q{"a", 1, 0, time.Second, time.Second}}, 0, `"a";r=0;t=1`, rej.RetryAfter},
		"same second":        {[]quoter{q{"a", 1, 0, time.Second, 2 * time.Second}}, 0, `"a";r=0;t=2`, 2 * time.Second},
		"another holds back": {[]quoter{q{"a", 1, 0, time.Second, time.Second}, q{"day", 9, 0, time.Hour, time.Hour}}, 0, `"a";r=0;t=1, "day";r=0;t=3600`, time.Hour},
		"another does not":   {[]quoter{q{"a", 1, 0, time.Second, time.Second}, q{"day", 9, 1, time.Hour, time.Hour}}, 0, `"a";r=0;t=1, "day";r=1`, rej.RetryAfter},
		"not for that cost":  {[]quoter{q{"day", 9, 3, time.Hour, time.Hour}}, 4, `"day";r=3;t=3600`, time.Hour},
		"for that cost":      {[]quoter{q{"day", 9, 4, time.Hour, time.Hour}}, 4, `"day";r=4`, rej.RetryAfter},
		"never":              {[]quoter{q{"grant", 9, 0, 0, never}}, 0, `"grant";r=0`, rej.RetryAfter},
	} {
		h, err := tell(rej, spillway.Request{Cost: c.cost}, c.quotas...)
		require.Equal(t, c.limit, field(h, "RateLimit"), name)
		var got *spillway.Rejection
		require.ErrorAs(t, err, &got, name)
		require.Equal(t, c.want, got.RetryAfter, name)
		want := *rej
		want.RetryAfter = c.want
		require.Equal(t, want, *got, name)
		if c.want == rej.RetryAfter {
			require.Same(t, rej, got, name)
		}
	}
	require.Equal(t, 1500*time.Millisecond, rej.RetryAfter, "the shared rejection is as it was")
}

func TestRateLimitSaysNothingToAClientThatIsGone(t *testing.T) {
	h, err := tell(context.Canceled, spillway.Request{}, quota{"a", 1, 1, time.Second, 0})
	require.Same(t, context.Canceled, err)
	require.Empty(t, h)
}

func TestRateLimitOfNestedGates(t *testing.T) {
	for _, c := range []struct {
		outer, inner int64
		x            string
	}{{5, 3, "9 3 7"}, {3, 5, "8 3 4"}, {3, 3, "8 3 4"}} {
		h := http.Header{}
		out := &httpgate.RateLimit{Limits: quotasOf(quota{"ip", 8, c.outer, time.Second, 4 * time.Second}), Draft: true, X: true}
		in := &httpgate.RateLimit{Limits: quotasOf(quota{"tenant", 9, c.inner, time.Second, 7 * time.Second}), Draft: true, X: true}
		for range 3 { // what is shared stays as it was
			clear(h)
			require.NoError(t, out.Set(h, epoch, spillway.Request{}, nil))
			require.NoError(t, in.Set(h, epoch, spillway.Request{}, nil))
			require.Equal(t, []string{`"ip";q=8;w=1`, `"tenant";q=9;w=1`}, h.Values("Ratelimit-Policy"))
			require.Equal(t, []string{fmt.Sprintf(`"ip";r=%d;t=4`, c.outer), fmt.Sprintf(`"tenant";r=%d;t=7`, c.inner)}, h.Values("Ratelimit"))
			require.Equal(t, c.x, field(h, "X-RateLimit-Limit")+" "+field(h, "X-RateLimit-Remaining")+" "+field(h, "X-RateLimit-Reset"))
		}
	}
	h := http.Header{}
	h.Set("X-Ratelimit-Remaining", "5")
	h.Set("X-Ratelimit-Reset", "9")
	l := &httpgate.RateLimit{Limits: quotasOf(quota{"grant", 4, 4, 0, never}), X: true}
	require.NoError(t, l.Set(h, epoch, spillway.Request{}, nil))
	require.Equal(t, http.Header{"X-Ratelimit-Limit": {"4"}, "X-Ratelimit-Remaining": {"4"}}, h, "no Reset of another limit, no draft fields")
	for _, draft := range []bool{false, true} {
		h = http.Header{}
		l = &httpgate.RateLimit{Limits: l.Limits, Draft: draft}
		require.NoError(t, l.Set(h, epoch, spillway.Request{}, nil))
		require.Equal(t, http.Header{"Ratelimit-Policy": {`"grant";q=4`}, "Ratelimit": {`"grant";r=4`}}, h, "no X fields")
	}
}

func TestRateLimitThroughServer(t *testing.T) {
	for addr, client := range bothProtocols(t, tenantHandler(t)) {
		for i := range 5 {
			r, err := http.NewRequest(http.MethodGet, addr, nil)
			require.NoError(t, err)
			res, err := client.Do(r)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, `"hour";q=3;w=3600, "day";q=1000;w=86400`, field(res.Header, "RateLimit-Policy"))
			r0, t0, r1 := items(t, field(res.Header, "RateLimit"))
			require.Equal(t, strconv.Itoa(max(2-i, 0)), r0)
			require.Equal(t, r0, field(res.Header, "X-RateLimit-Remaining"))
			require.Equal(t, t0, field(res.Header, "X-RateLimit-Reset"))
			require.Equal(t, "3", field(res.Header, "X-RateLimit-Limit"))
			require.Equal(t, strconv.Itoa(max(999-i, 997)), r1, "what the day gives to those whom the hour refuses is given back")
			if i < 3 {
				require.Equal(t, http.StatusOK, res.StatusCode)
				require.Empty(t, res.Header.Get("Retry-After"))
				continue
			}
			require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
			after, err := strconv.Atoi(res.Header.Get("Retry-After"))
			require.NoError(t, err)
			reset, err := strconv.Atoi(t0)
			require.NoError(t, err)
			require.GreaterOrEqual(t, after, reset)
			require.Greater(t, reset, 3500)
		}
	}
}

// items returns r and t of the first of two items, and r of the other.
func items(t *testing.T, value string) (r0, t0, r1 string) {
	t.Helper()
	first, second, ok := strings.Cut(value, ", ")
	require.True(t, ok, value)
	_, params, _ := strings.Cut(first, ";r=")
	r0, t0, ok = strings.Cut(params, ";t=")
	require.True(t, ok, value)
	_, params, ok = strings.Cut(second, ";r=")
	require.True(t, ok, value)
	r1, _, _ = strings.Cut(params, ";")
	return r0, t0, r1
}

// tenantHandler allows each tenant 3 requests per hour and 1000 per day.
func tenantHandler(t *testing.T) http.Handler {
	t.Helper()
	var quotas []quoter
	var policies []spillway.Policy
	for _, o := range []limiter.FixedWindow{
		{Name: "hour", Limit: 3, Period: time.Hour}, {Name: "day", Limit: 1000, Period: 24 * time.Hour},
	} {
		keyed, err := limiter.NewKeyed(o, nil)
		require.NoError(t, err)
		quotas, policies = append(quotas, keyed), append([]spillway.Policy{keyed}, policies...)
	}
	return middleware(t, &httpgate.Options{
		Request:   func(r *http.Request) spillway.Request { return spillway.Request{Key: r.Proto} },
		RateLimit: &httpgate.RateLimit{Limits: quotasOf(quotas...), Draft: true, X: true},
	}, policies...).Handler(http.HandlerFunc(fine))
}

func TestRateLimitIsWrittenWhereTheGateWasAsked(t *testing.T) {
	o := &httpgate.Options{
		RateLimit: &httpgate.RateLimit{Limits: quotasOf(quota{"a", 1, 1, time.Second, 0})},
		LongLived: func(r *http.Request) bool { return r.URL.Path == "/watch" },
	}
	m := middleware(t, o, admitter{})
	h := m.Handler(http.HandlerFunc(fine))
	require.Equal(t, `"a";r=1;t=0`, field(serve(h, "/").Header, "RateLimit"))
	require.Equal(t, `"a";r=1;t=0`, field(serve(h, "/watch").Header, "RateLimit"))
	require.Equal(t, "-", field(serve(h, "/livez").Header, "RateLimit"))
	require.Equal(t, "-", field(serve(h, "/").Header, "X-RateLimit-Limit"))

	shed := middleware(t, o, refuser{errFull}).Handler(unreachable(t))
	res := serve(shed, "/")
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.Equal(t, `"a";r=1;t=0`, field(res.Header, "RateLimit"))

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	require.Equal(t, "-", field(w.Header(), "RateLimit"))
}

type panickyQuota struct{}

func (panickyQuota) Quota(time.Time, spillway.Request) spillway.Quota {
	panic("no figures")
}

func TestPanickingQuotaGivesThePermitBack(t *testing.T) {
	p := &gatetest.Recorder{}
	h := middleware(t, &httpgate.Options{RateLimit: &httpgate.RateLimit{Limits: quotasOf(panickyQuota{})}}, p).Handler(unreachable(t))
	require.PanicsWithValue(t, "no figures", func() { serve(h, "/") })
	require.Equal(t, []spillway.Outcome{spillway.Failure}, p.Outcomes())
	require.Zero(t, p.InFlight())
}

func TestInvalidRateLimit(t *testing.T) {
	a := quota{name: "a"}
	for want, l := range map[string]*httpgate.RateLimit{
		"httpgate: RateLimit: Limits: must be 1 to 8, got 0":    {},
		"httpgate: RateLimit: Limits: must be 1 to 8, got 9":    {Limits: quotasOf(a, a, a, a, a, a, a, a, a)},
		"httpgate: RateLimit: Limits: must not be nil, got nil": {Limits: append(quotasOf(a), nil)},
	} {
		_, err := httpgate.New(spillway.New(), &httpgate.Options{RateLimit: l})
		require.EqualError(t, err, want)
	}
	_, err := httpgate.New(spillway.New(), &httpgate.Options{RateLimit: &httpgate.RateLimit{Limits: quotasOf(a, a, a, a, a, a, a, a)}})
	require.NoError(t, err)
	var l httpgate.RateLimit // of no use, and no harm
	h := http.Header{}
	require.NoError(t, l.Set(h, epoch, spillway.Request{}, nil))
	require.Empty(t, h)
}

// A planned quoter has another limit for every client, as a service has that sells plans.
type planned struct{}

func (planned) Quota(_ time.Time, r spillway.Request) spillway.Quota {
	return spillway.Quota{
		Name: "plan " + r.Key, Limit: int64(10 * r.Cost), Remaining: int64(r.Priority),
		Window: time.Duration(r.Cost) * time.Second, Reset: time.Second,
	}
}

func TestRateLimitOfManyPlansAtOnce(t *testing.T) {
	l := &httpgate.RateLimit{Limits: quotasOf(planned{}), Draft: true, X: true}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				plan := (g + i) % 40
				left := i % 3
				h := http.Header{}
				var err error
				if i%2 == 0 {
					err = errOverQuota
				}
				_ = l.Set(h, epoch, spillway.Request{Key: strconv.Itoa(plan), Cost: plan + 1, Priority: spillway.Priority(left)}, err)
				want := fmt.Sprintf(`"plan %d";q=%d;w=%d "plan %d";r=%d;t=1 %d %d`, plan, 10*(plan+1), plan+1, plan, left, 10*(plan+1), left)
				got := field(h, "RateLimit-Policy") + " " + field(h, "RateLimit") + " " + field(h, "X-RateLimit-Limit") + " " + field(h, "X-RateLimit-Remaining")
				if got != want {
					t.Errorf("want %s, got %s", want, got)
					return
				}
			}
		})
	}
	wg.Wait()
}
