package main

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// An item is what one item of RateLimit-Policy or RateLimit says.
type item struct {
	name   string
	params map[string]int64
}

// parse reads a field as a client with a library for structured fields does.
func parse(t *testing.T, h http.Header, field string) (items []item) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(h.Values(field))
	if err != nil {
		t.Fatalf("%s: %q: %v", field, h.Values(field), err)
	}
	for _, member := range list {
		i, ok := member.(httpsfv.Item)
		if !ok {
			t.Fatalf("%s: %q has an inner list", field, h.Values(field))
		}
		name, ok := i.Value.(string)
		if !ok {
			t.Fatalf("%s: %q: %v is no string", field, h.Values(field), i.Value)
		}
		params := map[string]int64{}
		for _, key := range i.Params.Names() {
			value, _ := i.Params.Get(key)
			if params[key], ok = value.(int64); !ok || params[key] < 0 {
				t.Fatalf("%s: %q: %s is %v", field, h.Values(field), key, value)
			}
		}
		items = append(items, item{name, params})
	}
	return items
}

// Three limits are three items, on a 200 and on a 429, and nobody is told to come back before any of them has more.
func TestFieldsOfThreeLimits(t *testing.T) {
	h := threeLimits(t)
	seen := map[int]int{}
	for range 40 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		seen[w.Code]++
		policies, limits := parse(t, w.Header(), "RateLimit-Policy"), parse(t, w.Header(), "RateLimit")
		if len(policies) != 3 || len(limits) != 3 {
			t.Fatalf("%v, %v", policies, limits)
		}
		for i, want := range []map[string]int64{{"q": 100, "w": 100}, {"q": 30, "w": 60}, {"q": 1000, "w": 86400}} {
			p, l := policies[i], limits[i]
			if p.name != l.name || p.params["q"] != want["q"] || p.params["w"] != want["w"] || len(p.params) != 2 {
				t.Fatalf("%v, %v", p, l)
			}
			r, ok := l.params["r"]
			if !ok || r > want["q"] {
				t.Fatalf("%v, %v", p, l)
			}
			after, err := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
			if (err == nil) != (w.Code == http.StatusTooManyRequests) {
				t.Fatalf("%d with Retry-After %q", w.Code, w.Header().Get("Retry-After"))
			}
			if err == nil && after < l.params["t"] {
				t.Fatalf("come back after %d s, but %v", after, l)
			}
		}
	}
	if seen[http.StatusOK] != 30 || seen[http.StatusTooManyRequests] != 10 {
		t.Fatal(seen)
	}
}

// threeLimits returns a handler behind a bucket, of which the test never asks too much, and two windows.
func threeLimits(t *testing.T) http.Handler {
	t.Helper()
	bucket, err := limiter.New(limiter.Bucket{Name: "second", Rate: limiter.Per(1, time.Second), Burst: 100})
	if err != nil {
		t.Fatal(err)
	}
	minute, err := limiter.New(limiter.SlidingLog{Name: "minute", Limit: 30, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	day, err := limiter.New(limiter.FixedWindow{Name: "day", Limit: 1000, Calendar: limiter.EveryDay})
	if err != nil {
		t.Fatal(err)
	}
	return httpgate.Handler(spillway.New(bucket, minute, day), &httpgate.Options{
		RateLimit: &httpgate.RateLimit{Limits: []httpgate.QuotaFunc{bucket.Quota, minute.Quota, day.Quota}},
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// told is a limit that always returns the same figures.
type told struct {
	name             string
	limit, remaining int64
	window, reset    time.Duration
}

func (q told) Quota(time.Time, spillway.Request) spillway.Quota {
	return spillway.Quota{Name: q.name, Limit: q.limit, Remaining: q.remaining, Window: q.window, Reset: q.reset}
}

// A client reads back every figure of a limit.
func TestFieldsAreReadAsTheyWereMeant(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		quotas := make([]httpgate.QuotaFunc, 1+rnd.IntN(8))
		var want []told
		for i := range quotas {
			name := make([]byte, 1+rnd.IntN(12))
			for j := range name {
				name[j] = ' ' + byte(rnd.IntN('~'-' '+1))
			}
			q := told{
				string(name), rnd.Int64N(1 << rnd.IntN(50)), rnd.Int64N(1 << rnd.IntN(50)),
				time.Duration(rnd.IntN(100_000)) * time.Second, time.Duration(rnd.Int64N(1 << rnd.IntN(59))),
			}
			quotas[i], want = q.Quota, append(want, q)
		}
		h := http.Header{}
		l := &httpgate.RateLimit{Limits: quotas}
		if err := l.Set(h, time.Time{}, spillway.Request{}, nil); err != nil {
			t.Fatal(err)
		}
		policies, limits := parse(t, h, "RateLimit-Policy"), parse(t, h, "RateLimit")
		if len(policies) != len(want) || len(limits) != len(want) {
			t.Fatalf("%v: %v", want, h)
		}
		for i, q := range want {
			p, l := policies[i], limits[i]
			w, hasWindow := p.params["w"]
			t0 := time.Duration(l.params["t"]) * time.Second
			if p.name != q.name || l.name != q.name || p.params["q"] != q.limit || l.params["r"] != q.remaining ||
				hasWindow != (q.window > 0) || time.Duration(w)*time.Second != q.window || t0 < q.reset || t0 >= q.reset+time.Second {
				t.Fatalf("%+v: %v, %v", q, p, l)
			}
		}
	}
}
