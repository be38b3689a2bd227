package redistest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, map[string]func() error{"echo": echo, "owner": owner})
}

// echo answers its orders and then every line.
func echo() error {
	var orders struct{ Greeting string }
	if err := redistest.Orders(&orders); err != nil {
		return err
	}
	fmt.Println(orders.Greeting)
	scan := bufio.NewScanner(os.Stdin)
	for scan.Scan() {
		fmt.Println(scan.Text())
	}
	return scan.Err()
}

// client gives up after 100 ms and never retries.
func client(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialTimeout: 100 * time.Millisecond, ReadTimeout: 100 * time.Millisecond, PoolSize: 1,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestServer(t *testing.T) {
	began := time.Now()
	s := redistest.Start(t)
	t.Logf("started within %v", time.Since(began))
	ctx := context.Background()
	c := client(t, s.Addr())
	require.NoError(t, c.Set(ctx, "k", 1, 0).Err())
	require.Equal(t, "1", s.Do("GET", "k"))

	s.Pause()
	require.Error(t, c.Get(ctx, "k").Err())
	s.Resume()
	require.Eventually(t, func() bool { return c.Get(ctx, "k").Val() == "1" }, 5*time.Second, time.Millisecond)

	s.Restart()
	require.Eventually(t, func() bool { return errors.Is(c.Get(ctx, "k").Err(), redis.Nil) }, 5*time.Second, time.Millisecond)
	s.Kill()
	s.Kill()
	require.Error(t, c.Get(ctx, "k").Err())
	s.Restart()
	require.NoError(t, s.Client().Ping(ctx).Err())
}

func TestPausedServerCanBeKilled(t *testing.T) {
	s := redistest.Start(t)
	s.Pause()
	s.Kill()
}

func TestReplica(t *testing.T) {
	s := redistest.Start(t)
	s.Do("SET", "k", "before")
	p := redistest.NewProxy(t, s.Addr())
	r := redistest.Replica(t, p.Addr())
	require.Equal(t, "before", r.Do("GET", "k"))
	p.BlackHole(true)
	s.Do("SET", "k", "after")
	s.Kill()
	r.Promote()
	require.Equal(t, "before", r.Do("GET", "k"), "a replica behind a black hole lags")
	r.Do("SET", "k", "new")
}

func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)})
	defer c.Close()
	ctx := context.Background()
	for i := range 20 {
		require.NoError(t, c.Set(ctx, fmt.Sprint("k", i), i, 0).Err())
	}
	for _, n := range nodes {
		require.NotZero(t, n.Client().DBSize(ctx).Val(), "each node has a share of the keys")
	}
}

func TestProxy(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	c := client(t, p.Addr())
	ctx := context.Background()
	require.NoError(t, c.Incr(ctx, "n").Err())

	p.SetLatency(30 * time.Millisecond)
	began := time.Now()
	require.NoError(t, c.Ping(ctx).Err())
	require.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
	p.SetLatency(300 * time.Millisecond)
	require.Error(t, c.Ping(ctx).Err())
	p.Heal()
	require.NoError(t, c.Incr(ctx, "n").Err())

	p.DropReplies(1)
	require.Error(t, c.Incr(ctx, "n").Err())
	require.Equal(t, "3", s.Do("GET", "n"), "dropped was the reply, not the request")
	p.Heal()
	require.NoError(t, c.Ping(ctx).Err())

	p.BlackHole(true)
	require.Error(t, c.Incr(ctx, "n").Err())
	require.Equal(t, "3", s.Do("GET", "n"), "a black hole takes the request too")
	p.BlackHole(false)
	require.Eventually(t, func() bool { return s.Do("GET", "n") == "4" }, 5*time.Second, time.Millisecond, "which arrives late")

	require.NoError(t, c.Ping(ctx).Err())
	raw, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer raw.Close()
	_, err = raw.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	_, err = io.ReadFull(raw, make([]byte, len("+PONG\r\n")))
	require.NoError(t, err)
	p.Reset()
	_, err = raw.Read(make([]byte, 1))
	require.ErrorContains(t, err, "reset by peer")
	p.Refuse(true)
	require.Error(t, c.Ping(ctx).Err())
	p.Heal()
	require.NoError(t, c.Ping(ctx).Err())
}

func TestProxyChangesTarget(t *testing.T) {
	a, b := redistest.Start(t), redistest.Start(t)
	p := redistest.NewProxy(t, a.Addr())
	c := client(t, p.Addr())
	ctx := context.Background()
	require.NoError(t, c.Set(ctx, "k", 1, 0).Err())
	p.SetTarget(b.Addr())
	p.Reset()
	require.Eventually(t, func() bool { return errors.Is(c.Get(ctx, "k").Err(), redis.Nil) }, 5*time.Second, time.Millisecond)
}

func TestProxyCarriesManyBytes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var got atomic.Int64
	go func() {
		c, err := l.Accept()
		if err == nil {
			n, _ := io.Copy(io.Discard, c)
			got.Store(n)
		}
	}()
	p := redistest.NewProxy(t, l.Addr().String())
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	_, err = c.Write(make([]byte, 10<<20))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return got.Load() == 10<<20 }, 5*time.Second, time.Millisecond)
}

func TestChild(t *testing.T) {
	c := redistest.Spawn(t, "echo", map[string]string{"Greeting": "hello"})
	require.Equal(t, "hello", c.Line(10*time.Second))
	c.Pause()
	c.Send("later")
	select {
	case line := <-c.Lines():
		require.Fail(t, "a paused process speaks", line)
	case <-time.After(50 * time.Millisecond):
	}
	c.Resume()
	require.Equal(t, "later", c.Line(10*time.Second))
	c.Wait(10 * time.Second)
	_, open := <-c.Lines()
	require.False(t, open)
	c.Kill()
}

// owner starts a server and says where, and ends only by being killed.
func owner() error {
	tests := []testing.InternalTest{{Name: "TestOwner", F: func(t *testing.T) {
		fmt.Println(redistest.Start(t).Addr())
		select {}
	}}}
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, tests, nil, nil)
	return nil
}

func TestServerDiesWithATestThatIsKilled(t *testing.T) {
	if !redistest.Found() {
		t.Skip(redistest.Missing)
	}
	if !redistest.DiesWithParent {
		t.Skip("SKIPPED: on this system a process outlives a parent that is killed")
	}
	c := redistest.Spawn(t, "owner", nil)
	addr := ""
	for !strings.HasPrefix(addr, "127.0.0.1:") {
		addr = c.Line(10 * time.Second)
	}
	require.NoError(t, client(t, addr).Ping(context.Background()).Err())
	c.Kill()
	require.Eventually(t, func() bool {
		return client(t, addr).Ping(context.Background()).Err() != nil
	}, 5*time.Second, 5*time.Millisecond)
}

func ExampleExample() {
	c := redistest.Example()
	defer c.Close()
	fmt.Println(c.Ping(context.Background()).Val())
	// Output: PONG
}
