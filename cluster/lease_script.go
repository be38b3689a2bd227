package cluster

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/cluster/internal/lease"
)

//go:embed scripts/lease.lua
var leaseLua string

// leaseArgs are the arguments that all calls of the script for one limit share.
type leaseArgs struct {
	node                                     string
	rate, burst, interval, term, reclaimTime string
}

func newLeaseArgs(node string, c *lease.Config) leaseArgs {
	return leaseArgs{
		node: node, rate: figure(c.Rate), burst: figure(c.Burst), interval: microsArg(c.Interval),
		term: microsArg(c.TTL), reclaimTime: microsArg(c.Reclaim),
	}
}

// figure writes a float64 so that the script reads the same number.
func figure(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func microsArg(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

func (a *leaseArgs) op(name string, more ...any) []any {
	return append([]any{name, a.node, a.rate, a.burst, a.interval, a.term, a.reclaimTime}, more...)
}

func (a *leaseArgs) sync(q *lease.Request) []any {
	return a.op("sync", q.Epoch, q.Seq, q.Ack, figure(q.Want), figure(q.Has), figure(q.Claim), figure(q.Weight), figure(q.Hold))
}

func (a *leaseArgs) release(q *lease.Request) []any { return a.op("release", q.Seq) }

func (a *leaseArgs) take(n int64) []any { return a.op("take", n) }

// A leaseReader reads the items of a reply, and remembers whether any was invalid.
type leaseReader struct {
	items []any
	bad   bool
}

func readReply(reply any, items int) leaseReader {
	list, ok := reply.([]any)
	return leaseReader{items: list, bad: !ok || len(list) != items}
}

func (r *leaseReader) next() any {
	if r.bad {
		return nil
	}
	v := r.items[0]
	r.items = r.items[1:]
	return v
}

func (r *leaseReader) int() int64 {
	v, ok := r.next().(int64)
	r.bad = r.bad || !ok
	return v
}

func (r *leaseReader) text() string {
	v, ok := r.next().(string)
	r.bad = r.bad || !ok
	return v
}

func (r *leaseReader) float() float64 {
	v, err := strconv.ParseFloat(r.text(), 64)
	r.bad = r.bad || err != nil || math.IsNaN(v) || math.IsInf(v, 0)
	return v
}

func (r *leaseReader) err(what string) error {
	if !r.bad {
		return nil
	}
	return &RedisError{Reason: ReasonScript, Err: fmt.Errorf("the reply to %s is invalid", what)}
}

// readSync reads the reply to "sync".
func readSync(reply any) (lease.Reply, error) {
	r := readReply(reply, 9)
	out := lease.Reply{
		Seq: uint64(r.int()), Epoch: r.text(), Grant: r.float(), Target: r.float(), Gift: r.float(),
		Learning: r.int() != 0, Hungry: r.int() != 0, Nodes: int(r.int()), Now: r.float(),
	}
	if out.Grant < 0 || out.Gift < 0 {
		r.bad = true
	}
	return out, r.err("sync")
}

// leaseTaken is the reply to "take".
type leaseTaken struct {
	taken    bool
	left     int64
	wait     time.Duration // negative if unknown
	nodes    int
	learning bool
}

func readTaken(reply any) (leaseTaken, error) {
	r := readReply(reply, 5)
	out := leaseTaken{
		taken: r.int() != 0, left: r.int(), wait: time.Duration(r.int()) * time.Microsecond,
		nodes: int(r.int()), learning: r.int() != 0,
	}
	return out, r.err("take")
}
