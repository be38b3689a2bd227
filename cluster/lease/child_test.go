package lease

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

// quotaOrders are what a process of the test gets to do.
type quotaOrders struct {
	Addr   string
	Rate   int
	Demand float64
	Weight float64 // 0 counts as 1
}

// quotaChild offers a demand to a quota, and prints every 100 ms how many requests were admitted since.
func quotaChild() error {
	var o quotaOrders
	if err := redistest.Orders(&o); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: o.Addr, MaxRetries: -1})
	opts := steadyOptions(client, o.Rate)
	opts.Weight = o.Weight
	q, err := New(&opts)
	if err != nil {
		return err
	}
	defer q.Close()
	gap := time.Duration(1e9 / o.Demand)
	admitted, due, told := 0, time.Now(), time.Now()
	for {
		now := time.Now()
		for ; !due.After(now); due = due.Add(gap) {
			if r, err := q.Take(context.Background(), "k", 1); err == nil && r.Allowed {
				admitted++
			}
		}
		if now.Sub(told) >= 100*time.Millisecond {
			fmt.Println(admitted) // to the test
			admitted, told = 0, told.Add(100*time.Millisecond)
		}
		time.Sleep(time.Millisecond) // a process of its own keeps real time
	}
}

// admittedBy adds up what children say of so many tenths of a second.
func admittedBy(t *testing.T, tenths int, children ...*redistest.Child) []float64 {
	t.Helper()
	out := make([]float64, len(children))
	for i, c := range children {
		for range tenths {
			n, err := strconv.Atoi(c.Line(10 * time.Second))
			require.NoError(t, err)
			out[i] += float64(n) * 10 / float64(tenths)
		}
	}
	return out
}

// Processes share a limit; one is killed in the middle of it, and the others have its share a term and an interval later.
func TestLimitOfAKilledProcess(t *testing.T) {
	t.Parallel()
	const rate = 2000
	s := redistest.Start(t)
	children := make([]*redistest.Child, 3)
	for i := range children {
		children[i] = redistest.Spawn(t, "quota", quotaOrders{Addr: s.Addr(), Rate: rate, Demand: rate})
	}
	admittedBy(t, 8, children...)
	awaitShares(t, []float64{rate / 3.0, rate / 3.0, rate / 3.0}, children...)
	children[0].Kill()
	admittedBy(t, 8, children[1:]...) // TTL + Interval
	awaitShares(t, []float64{rate / 2, rate / 2}, children[1:]...)
}

// Processes of different weights want more than there is: each gets its weighted max-min share, and what one does not want goes to
// the others by their weights.
func TestLimitOfWeightedProcesses(t *testing.T) {
	t.Parallel()
	const rate = 2000
	weights := []float64{1, 2, 4}
	for name, c := range map[string]struct{ demands, shares []float64 }{
		"all want more":  {[]float64{rate, rate, rate}, []float64{rate / 7.0, rate / 3.5, rate / 1.75}},
		"one wants less": {[]float64{rate, rate, 500}, []float64{500, 1000, 500}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			children := make([]*redistest.Child, len(weights))
			for i, w := range weights {
				children[i] = redistest.Spawn(t, "quota", quotaOrders{Addr: s.Addr(), Rate: rate, Demand: c.demands[i], Weight: w})
			}
			admittedBy(t, 10, children...)
			awaitShares(t, c.shares, children...)
		})
	}
}

// awaitShares looks at half a second after another until each process has what it should, within 5 %: a machine that is busy for half
// a second proves nothing.
func awaitShares(t *testing.T, shares []float64, children ...*redistest.Child) {
	t.Helper()
	for tries := 1; ; tries++ {
		got, off := admittedBy(t, 5, children...), 0.0
		for i := range got {
			off = max(off, math.Abs(got[i]/shares[i]-1))
		}
		t.Logf("%.0f, jain %.4f, off by at most %.1f %%", got, jain(got, shares), 100*off)
		if jain(got, shares) >= 0.995 && off < 0.05 {
			return
		}
		require.Less(t, tries, 10)
	}
}
