package cluster

import (
	"context"
	"fmt"
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
}

// quotaChild offers a demand to a quota, and prints every 100 ms how many requests were admitted since.
func quotaChild() error {
	var o quotaOrders
	if err := redistest.Orders(&o); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: o.Addr, MaxRetries: -1})
	opts := steadyOptions(client, o.Rate)
	q, err := NewQuota(&opts)
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
func TestQuotaOfAKilledProcess(t *testing.T) {
	const rate = 2000
	s := redistest.Start(t)
	children := make([]*redistest.Child, 3)
	for i := range children {
		children[i] = redistest.Spawn(t, "quota", quotaOrders{Addr: s.Addr(), Rate: rate, Demand: rate})
	}
	admittedBy(t, 8, children...)
	got := admittedBy(t, 5, children...)
	t.Logf("three processes: %.0f", got)
	require.InEpsilon(t, rate, total(got), 0.25)
	require.Greater(t, jain(got, []float64{1, 1, 1}), 0.98)
	children[0].Kill()
	admittedBy(t, 8, children[1:]...) // Term + Interval
	got = admittedBy(t, 5, children[1:]...)
	t.Logf("two processes, a term and an interval later: %.0f", got)
	require.InEpsilon(t, rate, total(got), 0.25)
	require.Greater(t, jain(got, []float64{1, 1}), 0.98)
}
