package lease

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/reason"
	"github.com/spillway-go/spillway/cluster/lease/internal/machine"
)

//go:embed scripts/lease.lua
var leaseLua string

// scriptArgs are the arguments that all calls of the script for one limit share.
type scriptArgs struct {
	node                                     string
	rate, burst, interval, term, reclaimTime string
}

func newScriptArgs(node string, c *machine.Config) scriptArgs {
	return scriptArgs{
		node: node, rate: figure(c.Rate), burst: figure(c.Burst), interval: microsArg(c.Interval),
		term: microsArg(c.TTL), reclaimTime: microsArg(c.Reclaim),
	}
}

// figure writes a float64 so that the script reads the same number.
func figure(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func microsArg(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

func (a *scriptArgs) op(name string, more ...any) []any {
	return append([]any{name, a.node, a.rate, a.burst, a.interval, a.term, a.reclaimTime}, more...)
}

func (a *scriptArgs) sync(q *machine.Request) []any {
	return a.op("sync", q.Epoch, q.Seq, q.Ack, figure(q.Want), figure(q.Has), figure(q.Claim), figure(q.Weight), figure(q.Hold))
}

func (a *scriptArgs) release(q *machine.Request) []any { return a.op("release", q.Seq) }

func (a *scriptArgs) take(n int64) []any { return a.op("take", n) }

// A reader reads the items of a reply, and remembers whether any was invalid.
type reader struct {
	items []any
	bad   bool
}

func readReply(reply any, items int) reader {
	list, ok := reply.([]any)
	return reader{items: list, bad: !ok || len(list) != items}
}

func (r *reader) next() any {
	if r.bad {
		return nil
	}
	v := r.items[0]
	r.items = r.items[1:]
	return v
}

func (r *reader) int() int64 {
	v, ok := r.next().(int64)
	r.bad = r.bad || !ok
	return v
}

func (r *reader) text() string {
	v, ok := r.next().(string)
	r.bad = r.bad || !ok
	return v
}

func (r *reader) float() float64 {
	v, err := strconv.ParseFloat(r.text(), 64)
	r.bad = r.bad || err != nil || math.IsNaN(v) || math.IsInf(v, 0)
	return v
}

func (r *reader) err(what string) error {
	if !r.bad {
		return nil
	}
	return &cluster.RedisError{Reason: reason.Script, Err: fmt.Errorf("the reply to %s is invalid", what)}
}

// readSync reads the reply to "sync".
func readSync(reply any) (machine.Reply, error) {
	r := readReply(reply, 9)
	out := machine.Reply{
		Seq: uint64(r.int()), Epoch: r.text(), Grant: r.float(), Target: r.float(), Gift: r.float(),
		Learning: r.int() != 0, Hungry: r.int() != 0, Nodes: int(r.int()), Now: r.float(),
	}
	if out.Grant < 0 || out.Gift < 0 {
		r.bad = true
	}
	return out, r.err("sync")
}

// takeReply is the reply to "take".
type takeReply struct {
	taken    bool
	left     int64
	wait     time.Duration // negative if unknown
	nodes    int
	learning bool
}

func readTaken(reply any) (takeReply, error) {
	r := readReply(reply, 5)
	out := takeReply{
		taken: r.int() != 0, left: r.int(), wait: time.Duration(r.int()) * time.Microsecond,
		nodes: int(r.int()), learning: r.int() != 0,
	}
	return out, r.err("take")
}
