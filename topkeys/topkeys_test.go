package topkeys_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/console"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/policytest"
	"github.com/spillway-go/spillway/stats"
	"github.com/spillway-go/spillway/topkeys"
)

func Example() {
	top := topkeys.New()
	perTenant := spillway.Must(limiter.NewKeyed(limiter.Bucket{Rate: limiter.Per(1, time.Hour)}, nil))
	gate := spillway.New(top, perTenant)
	for key := range strings.FieldsSeq("alice bob alice alice alice bob carol") {
		_, _ = gate.Enter(context.Background(), spillway.Request{Key: key})
	}
	for _, k := range top.Top(time.Now()) {
		fmt.Printf("%s: %.0f %%\n", k.Key, 100*k.Share)
	}
	// Output:
	// alice: 75 %
	// bob: 25 %
}

func TestContract(t *testing.T) {
	policytest.Run(t, func() spillway.Policy { return topkeys.New() }, nil)
	policytest.Run(t, func() spillway.Policy { return &topkeys.Sketch{} }, nil)
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func refuse(s *topkeys.Sketch, key string, at time.Time) {
	s.Done(spillway.Request{Key: key, Arrived: at}, 0, spillway.Result{Outcome: spillway.Refused})
}

// The shares are compared with exact counts, among a flood of invented keys.
func TestSharesAmongInventedKeys(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, exact := topkeys.New(), map[string]float64{}
		const n = 50_000
		for i := range n {
			key := fmt.Sprint("invented-", i)
			if r.Float64() < 0.5 {
				key = fmt.Sprint("tenant-", int(8*r.ExpFloat64())%30)
			}
			exact[key]++
			refuse(s, key, start)
		}
		found := map[string]bool{}
		keys := s.Top(start)
		require.LessOrEqual(t, len(keys), 20)
		for i, k := range keys {
			found[k.Key] = true
			require.LessOrEqual(t, k.Share, exact[k.Key]/n+1e-9, k.Key)
			require.Greater(t, k.Share, exact[k.Key]/n-1.0/250, k.Key)
			require.True(t, i == 0 || k.Share <= keys[i-1].Share)
		}
		for key, count := range exact {
			if count/n > 0.02 {
				require.True(t, found[key], "%s has %.3f of the refusals", key, count/n)
			}
		}
	}
}

func TestCountsFade(t *testing.T) {
	s := topkeys.New()
	for range 1000 {
		refuse(s, "yesterday", start)
	}
	later := start.Add(5 * time.Minute)
	for range 300 {
		refuse(s, "now", later)
	}
	keys := s.Top(later)
	require.Len(t, keys, 2)
	require.Equal(t, "now", keys[0].Key)
	require.Greater(t, keys[0].Share, 0.9)
	require.Empty(t, s.Top(later.Add(time.Hour)))
	require.Empty(t, topkeys.New().Top(start))
}

func TestOnlyRefusalsCount(t *testing.T) {
	s := topkeys.New()
	for _, o := range []spillway.Outcome{spillway.Ignored, spillway.Success, spillway.Failure, spillway.Dropped} {
		s.Done(spillway.Request{Key: "a", Arrived: start}, 0, spillway.Result{Outcome: o})
	}
	refuse(s, "", start)
	require.Empty(t, s.Top(start), "a request without a key has none")
	refuse(s, strings.Repeat("é", 100), start)
	refuse(s, strings.Repeat("é", 100)+"b", start)
	keys := s.Top(start)
	require.Len(t, keys, 2, "long keys that begin alike are two")
	require.Equal(t, strings.Repeat("é", 24)+"…", keys[0].Key)
	require.InDelta(t, 1.0/3, keys[0].Share, 1e-9)
}

func TestNoAllocationsAndBoundedMemory(t *testing.T) {
	gate := spillway.New(topkeys.New(), spillway.Must(limiter.NewKeyed(limiter.Bucket{Rate: limiter.Per(1, time.Hour)}, nil)))
	_, _ = gate.Enter(t.Context(), spillway.Request{Key: "a"})
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, err := gate.Enter(t.Context(), spillway.Request{Key: "a"})
		require.Error(t, err)
	}))
	s := topkeys.New()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 100_000 {
		refuse(s, fmt.Sprint(i), start)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(100<<10), "a hundred thousand keys")
	runtime.KeepAlive(s)
}

func TestConcurrently(t *testing.T) {
	s := topkeys.New()
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 5000 {
				refuse(s, fmt.Sprint("key-", i%(3+g)), start)
				if i%100 == 0 {
					_ = s.Top(start)
				}
			}
		})
	}
	all.Wait()
	require.NotEmpty(t, s.Top(start))
}

// One list serves every policy of a gate, behind HTTP. Only the page that is asked shows it.
func TestPageAndExporters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		breakers := spillway.Must(breaker.NewKeyed(&breaker.KeyedOptions{New: func(string) (breaker.Member, error) {
			return breaker.New(&breaker.Options{Consecutive: 1})
		}}))
		gate := spillway.New(topkeys.New(), breakers)
		server, err := httpgate.New(gate, &httpgate.Options{Request: func(r *http.Request) spillway.Request {
			return spillway.Request{Key: r.Header.Get("Tenant")}
		}})
		require.NoError(t, err)
		handler := server.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
		for range 5 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Tenant", "acme-secret")
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}
		sources := map[string]stats.Source{"api": server}
		require.NotContains(t, stats.Var(sources).String(), "acme-secret")
		for _, keys := range []bool{false, true} {
			page := console.New(sources, &console.Options{Keys: keys, Allow: func(*http.Request) bool { return true }})
			w := httptest.NewRecorder()
			page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/spillway/snapshot", nil))
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, keys, strings.Contains(w.Body.String(), `"key":"acme-secret"`))
			require.NoError(t, page.Close())
		}
		breaks := 0
		for m := range server.Metrics() {
			breaks++
			if m.Label("key") != "" {
				require.InDelta(t, 1, m.Value, 1e-9)
				require.Equal(t, "spillway.keys.refused", m.Name)
				break
			}
		}
		require.Positive(t, breaks)
	})
}

func BenchmarkRefuse(b *testing.B) {
	s := topkeys.New()
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	for name, n := range map[string]int{"one key": 1, "1024 keys": 1024} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				refuse(s, keys[i%n], start)
			}
		})
	}
}
