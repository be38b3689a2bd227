package lock

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

// semaphoreOrders is what a process of semaphoreChild is told.
type semaphoreOrders struct {
	Addr  string
	Limit int
	TTL   time.Duration
}

// semaphoreChild does what it reads: "lock", "unlock", and "contend N", which locks and unlocks N times in each of four
// goroutines. It says so when a lease is lost.
func semaphoreChild() error {
	var o semaphoreOrders
	if err := redistest.Orders(&o); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: o.Addr, ContextTimeoutEnabled: true})
	s, err := New(&Options{Client: client, Limit: o.Limit, TTL: o.TTL, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println("ready")
	var held *Lease
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch word, rest, _ := strings.Cut(in.Text(), " "); word {
		case "lock":
			if held, err = s.Acquire(context.Background(), "k"); err != nil {
				return err
			}
			fmt.Println("locked", held.Fence())
			context.AfterFunc(held.Context(), func() { fmt.Println("ended:", context.Cause(held.Context())) })
		case "unlock":
			fmt.Println("unlocked", held.Release())
		case "contend":
			n, err := strconv.Atoi(rest)
			if err != nil {
				return err
			}
			fmt.Println("done", contend(s, client, n))
		}
	}
	return in.Err()
}

// inside counts at Redis who is inside, how many that were at most, and who came with a number that was not the greatest.
const inside = `
local n = redis.call('INCR', KEYS[1])
if n > tonumber(redis.call('GET', KEYS[2]) or '0') then redis.call('SET', KEYS[2], n) end
if tonumber(ARGV[1]) <= tonumber(redis.call('GET', KEYS[3]) or '0') then redis.call('INCR', KEYS[4]) end
redis.call('SET', KEYS[3], ARGV[1])
return n`

func contend(s *Semaphore, client *redis.Client, n int) error {
	var all sync.WaitGroup
	failed := make(chan error, 4)
	for range cap(failed) {
		all.Go(func() {
			for range n {
				h, err := s.Acquire(context.Background(), "k")
				if err == nil {
					err = client.Eval(h.Context(), inside, []string{"inside", "most", "number", "stale"}, h.Fence()).Err()
				}
				if err == nil {
					err = client.Decr(h.Context(), "inside").Err()
				}
				if err == nil {
					err = h.Release()
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

func spawnSemaphore(t *testing.T, o semaphoreOrders) *redistest.Child {
	c := redistest.Spawn(t, "semaphore", o)
	require.Equal(t, "ready", c.Line(time.Minute))
	return c
}

func lockIn(t *testing.T, c *redistest.Child) (fence int64) {
	c.Send("lock")
	_, err := fmt.Sscanf(c.Line(time.Minute), "locked %d", &fence)
	require.NoError(t, err)
	return fence
}

// Three processes want one lock as often as they can: they never are inside together, and numbers only grow.
func TestMutualExclusionOfProcesses(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	var children []*redistest.Child
	for range 3 {
		children = append(children, spawnSemaphore(t, semaphoreOrders{redisServer.Addr(), 1, 10 * time.Second}))
	}
	for _, c := range children {
		c.Send("contend 25")
	}
	for _, c := range children {
		require.Equal(t, "done <nil>", c.Line(time.Minute))
	}
	require.Equal(t, "1", redisServer.Do("GET", "most"))
	require.Equal(t, "0", redisServer.Do("GET", "inside"))
	require.Nil(t, redisServer.Do("GET", "stale"), "a number that was not the greatest so far")
}

// A holder that is killed gives its permit back by the end of its TTL.
func TestPermitOfAKilledProcessComesBack(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	const ttl = time.Second
	c := spawnSemaphore(t, semaphoreOrders{redisServer.Addr(), 1, ttl})
	s := semaphoreAt(t, redisServer.Addr(), Options{Limit: 1, TTL: ttl})
	theirs := lockIn(t, c)
	held, _, err := s.Peek(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, 1, held)
	c.Kill()
	began := time.Now()
	h, err := s.Acquire(t.Context(), "k")
	require.NoError(t, err)
	took := time.Since(began)
	t.Logf("back after %v", took)
	require.Greater(t, took, ttl/2, "it had been renewed not long ago")
	require.Less(t, took, 10*ttl)
	require.Greater(t, h.Fence(), theirs)
	require.NoError(t, h.Release())
}

// A process that stands still for longer than its TTL learns of it when it goes on, and its number is stale by then.
func TestStoppedProcessLosesItsLease(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	const ttl = time.Second
	c := spawnSemaphore(t, semaphoreOrders{redisServer.Addr(), 1, ttl})
	s := semaphoreAt(t, redisServer.Addr(), Options{Limit: 1, TTL: ttl})
	theirs := lockIn(t, c)
	c.Pause()
	h, err := s.Acquire(t.Context(), "k")
	require.NoError(t, err)
	require.Greater(t, h.Fence(), theirs)
	c.Resume()
	require.Equal(t, "ended: lock: lease lost", c.Line(time.Minute))
	c.Send("unlock")
	require.Equal(t, "unlocked lock: lease lost", c.Line(time.Minute))
	held, _, err := s.Peek(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, 1, held, "it gives back nobody's permit but its own")
	require.NoError(t, h.Context().Err())
	require.NoError(t, h.Release())
}
