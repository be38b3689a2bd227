package peers

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeromicro/go-zero/core/stat"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

func idle() (float64, float64) { return 0, 0 }

func TestEveryPeerAdmitsAtRest(t *testing.T) {
	for _, p := range All() {
		a, err := p.New(Facts{CPU: idle})
		require.NoError(t, err, p.Name)
		for range 100 {
			done, ok := a.Admit()
			require.True(t, ok, p.Name)
			done()
		}
		if v := a.View(); v.InFlight != nil {
			require.Zero(t, *v.InFlight, p.Name)
		}
	}
}

// The peers' own samplers may write between the feeding and the look, four times a second at most.
func TestCPUReachesThePeers(t *testing.T) {
	cpu := func() (float64, float64) { return 0.7, 0.3 }
	for _, c := range []struct {
		name string
		want float64
	}{{"go-zero", 0.7}, {"go-zero-smooth", 0.3}, {"aegis", 0.7}, {"aegis-smooth", 0.3}} {
		p, err := Find(c.name)
		require.NoError(t, err)
		a, err := p.New(Facts{CPU: cpu})
		require.NoError(t, err)
		seen := 0
		for range 10 {
			_, ok := a.Admit()
			require.True(t, ok)
			if *a.View().CPUSmoothed == c.want {
				seen++
			}
		}
		require.GreaterOrEqual(t, seen, 8, c.name)
	}
	require.GreaterOrEqual(t, stat.CpuUsage(), int64(0))
}

func TestCPUShedderRefusesOnlyWhenHot(t *testing.T) {
	for _, name := range []string{"go-zero", "aegis"} {
		for _, hot := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				p, err := Find(name)
				require.NoError(t, err)
				a, err := p.New(Facts{CPU: func() (float64, float64) {
					if hot {
						return 1, 1
					}
					return 0, 0
				}})
				require.NoError(t, err)
				require.Equal(t, hot, refusals(&a) > 0, "%s, hot %t", name, hot)
			})
		}
	}
}

// refusals holds ever more requests that take 10 ms each.
func refusals(a *Admission) (n int) {
	var inside []func()
	for range 200 {
		for range 20 {
			if done, ok := a.Admit(); ok {
				inside = append(inside, done)
			} else {
				n++
			}
		}
		time.Sleep(10 * time.Millisecond)
		for range min(5, len(inside)) {
			inside[0]()
			inside = inside[1:]
		}
	}
	return n
}

func TestThrottlerRefusesAfterSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := failsafeThrottler(Facts{})
		require.NoError(t, err)
		refused := 0
		for range 400 {
			done, ok := a.Admit()
			if !ok {
				refused++
				continue
			}
			time.Sleep(throttled + time.Millisecond)
			done()
		}
		require.Positive(t, refused)
		require.Positive(t, a.View().Extra["refusal_rate"])
	})
}

// A limit by latency rises while the latency stays, and falls when it grows with the requests in flight.
func TestLimitsFollowTheLatency(t *testing.T) {
	for _, name := range []string{"gradient2", "vegas"} {
		synctest.Test(t, func(t *testing.T) {
			p, err := Find(name)
			require.NoError(t, err)
			a, err := p.New(Facts{})
			require.NoError(t, err)
			limit := func() float64 { return *a.View().Limit }
			round := func(latency time.Duration) {
				var inside []func()
				for done, ok := a.Admit(); ok; done, ok = a.Admit() {
					inside = append(inside, done)
				}
				time.Sleep(latency)
				for _, done := range inside {
					done()
				}
			}
			for range 3 {
				round(10 * time.Millisecond)
			}
			high := limit()
			require.Greater(t, high, float64(firstLimit), name)
			for range 3 {
				round(100 * time.Millisecond)
			}
			require.Less(t, limit(), high, name)
		})
	}
}

func TestGuardsServe(t *testing.T) {
	for _, g := range Guards() {
		h, view, err := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
		require.NoError(t, err, g.Name)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, http.StatusTeapot, w.Code, g.Name)
		require.NotNil(t, view, g.Name)
		view()
	}
}

func TestGuardRefusesWith503(t *testing.T) {
	p := Peer{"full", func(Facts) (Admission, error) {
		return Admission{Admit: func() (func(), bool) { return nil, false }}, nil
	}}
	h, _, err := p.wrap(nil)
	require.NoError(t, err)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
}

func TestPolicyGivesTheTime(t *testing.T) {
	var told []time.Time
	ended := 0
	p := Peer{"two", func(Facts) (Admission, error) {
		return Admission{Admit: func() (func(), bool) { return func() { ended++ }, len(told) < 3 }}, nil
	}}
	policy, err := p.Policy(spillway.Must(stats.NewCPU(nil)), func(now time.Time) { told = append(told, now) })
	require.NoError(t, err)
	gate := spillway.New(policy)
	at := time.Unix(1000, 0)
	first, err := gate.Enter(t.Context(), spillway.Request{Arrived: at})
	require.NoError(t, err)
	first.DoneAt(at.Add(time.Second), spillway.Success, 0)
	require.Equal(t, []time.Time{at, at.Add(time.Second)}, told)
	require.Equal(t, 1, ended)
	_, err = gate.Enter(t.Context(), spillway.Request{Arrived: at.Add(2 * time.Second)})
	require.ErrorIs(t, err, spillway.ErrRejected)
}

func TestFindNamesWhatThereIs(t *testing.T) {
	_, err := Find("nobody")
	require.ErrorContains(t, err, "go-zero, go-zero-smooth")
}
