package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

func newRegistry(t testing.TB, maxKeys int) *Registry {
	t.Helper()
	g, err := NewRegistry(&RegistryOptions{MaxKeys: maxKeys, New: func(key string) (Member, error) {
		if key == "broken" {
			return nil, errors.New("no such tenant")
		}
		return New(Queue{Limit: 1, MaxQueue: 2, Name: "queue"})
	}})
	require.NoError(t, err)
	return g
}

func TestRegistryQueuesPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := spillway.New(newRegistry(t, 0))
		begin := time.Now()
		var mu sync.Mutex
		took := map[string][]time.Duration{}
		var all sync.WaitGroup
		for i := range 6 {
			key := []string{"a", "b"}[i%2]
			all.Go(func() {
				permit, err := gate.Enter(t.Context(), spillway.Request{Key: key})
				require.NoError(t, err)
				mu.Lock()
				took[key] = append(took[key], time.Since(begin))
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
				permit.Done(spillway.Success)
			})
			synctest.Wait()
		}
		all.Wait()
		each := []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond}
		require.Equal(t, map[string][]time.Duration{"a": each, "b": each}, took)
	})
}

func TestRegistryForgetsOnlyWhatIsIdle(t *testing.T) {
	g := newRegistry(t, 1)
	ctx := t.Context()
	a := spillway.Request{Key: "a", Arrived: after(0)}
	ticket, err := g.Admit(ctx, a)
	require.NoError(t, err)
	b := spillway.Request{Key: "b", Arrived: after(0)}
	shared, err := g.Admit(ctx, b)
	require.NoError(t, err, "by the policy that new keys share")
	require.Equal(t, RegistryStats{Name: "limits", Keys: 1, MaxKeys: 1, Overflowed: 1}, g.Stats())
	g.Done(a, ticket, spillway.Result{Outcome: spillway.Success})

	// a is idle, so b gets a policy of its own; what it took from the shared one goes back there.
	own, err := g.Admit(ctx, b)
	require.NoError(t, err)
	require.Equal(t, RegistryStats{Name: "limits", Keys: 1, MaxKeys: 1, Overflowed: 1, Evicted: 1}, g.Stats())
	g.Done(b, shared, spillway.Result{Outcome: spillway.Success})
	m, ok := g.Lookup("b")
	require.True(t, ok)
	require.Equal(t, int64(1), m.(Limiter).Stats().InFlight)
	g.Done(b, own, spillway.Result{Outcome: spillway.Success})
	require.True(t, m.Idle(after(0)))
	_, ok = g.Lookup("c")
	require.False(t, ok, "it builds none")
	c := spillway.Request{Key: "c", Arrived: after(0)}
	ticket, err = g.Admit(ctx, c)
	require.NoError(t, err)
	g.Done(c, ticket, spillway.Result{})
	require.Equal(t, int64(2), g.Stats().Evicted)
}

// One who waits keeps its key, although nothing is in flight any more.
func TestRegistryRemembersWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spillway.Must(NewRegistry(&RegistryOptions{MaxKeys: 1, New: func(string) (Member, error) {
			return New(Shaper{Rate: Per(1, time.Second), MaxWait: time.Minute})
		}}))
		for i := range 3 {
			go func() {
				_, err := g.Admit(t.Context(), spillway.Request{Key: "a", Arrived: time.Now()})
				assert.NoError(t, err, "number %d", i)
			}()
			synctest.Wait()
		}
		_, err := g.Admit(t.Context(), spillway.Request{Key: "b", Arrived: time.Now()})
		require.NoError(t, err)
		require.Equal(t, int64(1), g.Stats().Overflowed)
		time.Sleep(time.Minute)
	})
}

func TestRegistryWhenNewFails(t *testing.T) {
	g := newRegistry(t, 0)
	ticket, err := g.Admit(t.Context(), spillway.Request{Key: "broken", Arrived: after(0)})
	require.NoError(t, err, "by the policy that new keys share")
	require.Equal(t, int64(1), g.Stats().Overflowed)
	g.Done(spillway.Request{Key: "broken"}, ticket, spillway.Result{})
	_, ok := g.Lookup("broken")
	require.False(t, ok)
	require.True(t, sharedOf(g).Idle(after(0)))
	require.Equal(t, int64(0), g.Stats().Keys)
}

func TestRegistryConcurrently(t *testing.T) {
	g := newRegistry(t, 4)
	gate := spillway.New(g)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 2000 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				permit, err := gate.Enter(ctx, spillway.Request{Key: fmt.Sprint((i * w) % 9)})
				if err == nil {
					permit.Done(spillway.Success)
				}
				cancel()
			}
		})
	}
	all.Wait()
	require.True(t, sharedOf(g).Idle(time.Now()))
	require.LessOrEqual(t, g.Stats().Keys, int64(4))
	for i := range g.table.shards {
		for _, s := range g.table.shards[i].slots {
			require.Zero(t, s.state.users)
		}
	}
}

func TestRegistryOptions(t *testing.T) {
	ok := func(string) (Member, error) { return New(Queue{Limit: 1, MaxQueue: 1}) }
	for want, o := range map[string]*RegistryOptions{
		"New must be set, got nil":           nil,
		"MaxKeys must be in 1..2^24, got -1": {New: ok, MaxKeys: -1},
		"New: boom":                          {New: func(string) (Member, error) { return nil, errors.New("boom") }},
		"New: returned nil":                  {New: func(string) (Member, error) { return nil, nil }},
	} {
		g, err := NewRegistry(o)
		require.Nil(t, g)
		require.EqualError(t, err, "limiter: Registry: "+want)
	}
}

// A factory that fails in whatever way counts, and its requests go to the shared policy.
func TestRegistryCountsFactoriesThatFail(t *testing.T) {
	var none *queue
	g := spillway.Must(NewRegistry(&RegistryOptions{New: func(key string) (Member, error) {
		switch key {
		case "error":
			return nil, errors.New("no")
		case "typed nil":
			return none, nil
		case "panic":
			panic("no")
		}
		return newQueue(t, Queue{Limit: 1, MaxQueue: 1}), nil
	}}))
	for i, key := range []string{"error", "typed nil"} {
		r := spillway.Request{Key: key, Arrived: after(0)}
		ticket, err := g.Admit(t.Context(), r)
		require.NoError(t, err)
		g.Done(r, ticket, spillway.Result{})
		require.Equal(t, int64(i+1), g.Stats().Failed)
	}
	require.Panics(t, func() { _, _ = g.Admit(t.Context(), spillway.Request{Key: "panic", Arrived: after(0)}) })
	require.Equal(t, int64(3), g.Stats().Failed)

	_, err := NewRegistry(&RegistryOptions{New: func(string) (Member, error) { return none, nil }})
	require.EqualError(t, err, "limiter: Registry: New: returned nil")
	for _, nothing := range []Rule{nil, (*Bucket)(nil)} {
		_, err = New(nothing)
		require.EqualError(t, err, "limiter: New: rule must be set, got nil")
		_, err = NewKeyed(nothing, nil)
		require.EqualError(t, err, "limiter: Keyed: rule must be set, got nil")
		k := newKeyed(t, newBucket(t, Per(1, time.Second), 1), 0)
		require.ErrorContains(t, k.Tune(nothing), "rule must be of the same kind")
	}
}

// sharedOf returns the policy of keys that have none of their own.
func sharedOf(g *Registry) Member {
	m, _ := g.Lookup("")
	return m
}

func TestRegistryWithoutAKey(t *testing.T) {
	g := newRegistry(t, 1)
	ticket, err := g.Admit(t.Context(), spillway.Request{Arrived: after(0)})
	require.NoError(t, err)
	require.False(t, sharedOf(g).Idle(after(0)))
	require.Equal(t, RegistryStats{Name: "limits", MaxKeys: 1}, g.Stats(), "no key, so none overflowed")
	g.Done(spillway.Request{Arrived: after(0)}, ticket, spillway.Result{Outcome: spillway.Success})
	require.True(t, sharedOf(g).Idle(after(0)))
}
