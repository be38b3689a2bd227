package lease

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster/lease/internal/machine"
	"github.com/spillway-go/spillway/limiter"
)

// A quotaFleet is several quotas on one Redis, each as if in a process of its own, under load in real time.
type quotaFleet struct {
	t      *testing.T
	quotas []*Limit
	demand []float64
	rate   float64
	burst  float64
	slices [][]float64 // admitted in each 100 ms, by node
}

func clientOf(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 4, DialTimeout: 200 * time.Millisecond})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newQuota(t *testing.T, o Options) *Limit {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 8
	}
	q, err := New(&o)
	require.NoError(t, err)
	t.Cleanup(q.Close)
	return q
}

func (f *quotaFleet) join(o Options, demand float64) {
	f.quotas = append(f.quotas, newQuota(f.t, o))
	f.demand = append(f.demand, demand)
}

// run offers the demand for d, and returns what each node admitted per second.
func (f *quotaFleet) run(d time.Duration) []float64 {
	const window = 100 * time.Millisecond
	windows := int((d+window-1)/window) + 20 // a busy machine ends late
	f.slices = make([][]float64, windows)
	for i := range f.slices {
		f.slices[i] = make([]float64, len(f.quotas))
	}
	begin := time.Now()
	var all sync.WaitGroup
	for i, q := range f.quotas {
		if f.demand[i] == 0 {
			continue
		}
		all.Go(func() {
			due := begin
			gap := time.Duration(1e9 / f.demand[i])
			for {
				now := time.Now()
				if now.Sub(begin) >= d {
					return
				}
				for ; !due.After(now); due = due.Add(gap) {
					if _, err := q.Admit(context.Background(), spillway.Request{Key: "k", Arrived: time.Now()}); err == nil {
						f.slices[min(int(time.Since(begin)/window), windows-1)][i]++
					}
				}
				time.Sleep(max(time.Until(due), 500*time.Microsecond)) // real servers keep real time
			}
		})
	}
	all.Wait()
	out := make([]float64, len(f.quotas))
	for _, s := range f.slices {
		for i, n := range s {
			out[i] += n / d.Seconds()
		}
	}
	return out
}

// shares returns the max-min shares.
func (f *quotaFleet) shares() []float64 {
	all := make([]*machine.Entry, len(f.demand))
	for i, d := range f.demand {
		all[i] = &machine.Entry{Want: min(d, f.rate), Weight: 1}
	}
	level, _ := machine.Fill(f.rate, float64(len(all)), all)
	out := make([]float64, len(f.demand))
	for i, d := range f.demand {
		out[i] = min(d, level)
	}
	return out
}

func total(xs []float64) (s float64) {
	for _, x := range xs {
		s += x
	}
	return s
}

// attempts is how often a test in real time may be spoilt by a machine that is busy with other things.
const attempts = 5

// complaints are what a test in real time does not like of one attempt. They are for the assertions of package assert.
type complaints []string

func (c *complaints) Errorf(format string, args ...any) {
	*c = append(*c, fmt.Sprintf(format, args...))
}

// inSomeAttempt makes attempts until one has no complaints: a busy machine spoils some of them, and a fault spoils all. What an attempt
// requires must hold in each.
func inSomeAttempt(t *testing.T, attempt func(t *testing.T, c *complaints)) {
	t.Helper()
	var c complaints
	for i := range attempts {
		c = nil
		if !t.Run(fmt.Sprint("attempt ", i+1), func(t *testing.T) { attempt(t, &c) }) || len(c) == 0 {
			return
		}
		t.Logf("attempt %d: %s", i+1, strings.Join(c, "\n"))
	}
	require.Empty(t, c)
}

// worst returns the most that all admitted in 100 ms.
func (f *quotaFleet) worst() (w float64) {
	for _, s := range f.slices {
		w = max(w, total(s))
	}
	return w
}

// jain returns how evenly got is what should be: 1 if all nodes got the same part of their shares.
func jain(got, should []float64) float64 {
	var s, sq, n float64
	for i := range got {
		if should[i] > 0 {
			x := got[i] / should[i]
			s, sq, n = s+x, sq+x*x, n+1
		}
	}
	return s * s / (n * sq)
}

// skewedDemand returns n demands up to 32:1 that add up to sum.
func skewedDemand(n int, sum float64) []float64 {
	d := make([]float64, n)
	for i := range d {
		d[i] = float64(int64(1) << (5 * i / max(n-1, 1)))
	}
	scale := sum / total(d)
	for i := range d {
		d[i] *= scale
	}
	return d
}

func steadyOptions(client redis.UniversalClient, rate int) Options {
	return Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(rate, time.Second), Burst: rate / 5}, Nodes: 8}
}
