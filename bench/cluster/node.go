package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/zeromicro/go-zero/core/logx"
)

// ordersEnv makes a process of this program a node, and holds its instructions.
const ordersEnv = "SPILLWAY_BENCH_NODE"

// window is the resolution of the counts of admitted requests.
const window = 100 * time.Millisecond

// patience is how long a request waits for a decision.
const patience = time.Second

// nodeOrders are the orders of a node.
type nodeOrders struct {
	Redis string
	Rate  int           // tokens per second that each limiter grants to all nodes together
	Nodes int           // number of nodes
	Ahead time.Duration // how far its clock is ahead of the others
}

// A tally is what one limiter of a node decided in one window of the wall clock, which all nodes share here.
type tally struct {
	Limiter  int // index in compared
	Window   int64
	Admitted int
	Refused  int
	Errors   int
	Waits    []int64 // µs that each decision took
}

// isNode reports whether this process was started as a node.
func isNode() bool { return os.Getenv(ordersEnv) != "" }

// beNode asks each limiter as often as all nodes together may. It begins with the first line of its input and stops at
// the end. It prints its tallies once per window. The clock that the limiters see is ahead by Ahead.
func beNode() error {
	var o nodeOrders
	if err := json.Unmarshal([]byte(os.Getenv(ordersEnv)), &o); err != nil {
		return err
	}
	logx.Disable()
	redis.SetLogger(silent{}) // the outage of Redis is what this measures
	all := limit{addr: o.Redis, rate: o.Rate, nodes: o.Nodes}.compared()
	defer closeAll(all)
	in := bufio.NewReader(os.Stdin)
	if err := json.NewEncoder(os.Stdout).Encode(len(all)); err != nil { // ready
		return err
	}
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{nodeOrders: o, tallies: map[[2]int64]*tally{}}
	var running sync.WaitGroup
	for i := range all {
		running.Go(func() { n.load(ctx, i, &all[i]) })
	}
	running.Go(func() { n.tell(ctx, json.NewEncoder(os.Stdout)) })
	_, _ = io.Copy(io.Discard, in)
	cancel()
	running.Wait()
	return nil
}

// A node counts what its limiters decide.
type node struct {
	nodeOrders

	mu      sync.Mutex
	tallies map[[2]int64]*tally // by limiter and window; guarded by mu
}

// load sends requests at random times, without waiting for answers. With even spacing, the nodes would find new tokens
// in the same order each time, and one node would get most of them.
func (n *node) load(ctx context.Context, i int, e *entry) {
	var asking sync.WaitGroup
	defer asking.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := time.Now(); ; {
		next = next.Add(time.Duration(rand.ExpFloat64() / float64(n.Rate) * float64(time.Second)))
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			asking.Go(func() { n.ask(ctx, i, e) })
		}
	}
}

func (n *node) ask(ctx context.Context, i int, e *entry) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begin := time.Now()
	// A wrong wall clock has no monotonic reading, like any time that was set.
	allowed, err := e.ask(ctx, begin.Round(0).Add(n.Ahead))
	end := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	at := [2]int64{int64(i), end.UnixNano() / int64(window)}
	t := n.tallies[at]
	if t == nil {
		t = &tally{Limiter: i, Window: at[1]}
		n.tallies[at] = t
	}
	switch {
	case err != nil:
		t.Errors++
	case allowed:
		t.Admitted++
	default:
		t.Refused++
	}
	t.Waits = append(t.Waits, end.Sub(begin).Microseconds())
}

// tell prints the tallies of the windows that are over.
func (n *node) tell(ctx context.Context, out *json.Encoder) {
	beat := time.NewTicker(window)
	defer beat.Stop()
	for ctx.Err() == nil {
		<-beat.C
		for _, t := range n.over(time.Now().UnixNano() / int64(window)) {
			if err := out.Encode(t); err != nil {
				return // the reader has gone
			}
		}
	}
}

func (n *node) over(now int64) []*tally {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*tally
	for at, t := range n.tallies {
		if at[1] < now {
			out = append(out, t)
			delete(n.tallies, at)
		}
	}
	return out
}

// silent is a logger of the client that says nothing.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
