package lease

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/cluster/lease/internal/machine"
)

// fakeClockLua takes the time from the last argument: in production it is that of Redis alone.
const fakeClockLua = "local now = tonumber(ARGV[#ARGV])"

// leasePair is the script in a real Redis and the model, which are told the same.
type leasePair struct {
	t      *testing.T
	conn   *call.Conn
	script *call.Script
	keys   []string
	cfg    machine.Config
	model  machine.Table
	now    float64
	nodes  []*pairNode
	rng    *rand.Rand
	server *redistest.Server
}

type pairNode struct {
	id      string
	q       machine.Request
	replies []machine.Reply
}

func (p *leasePair) args(n *pairNode) scriptArgs { return newScriptArgs(n.id, &p.cfg) }

func (p *leasePair) call(args []any) any {
	p.t.Helper()
	reply, err := p.conn.Call(context.Background(), p.script, p.keys, append(args, strconv.FormatFloat(p.now, 'f', 0, 64))...)
	require.NoError(p.t, err)
	return reply
}

func (p *leasePair) sync(n *pairNode) {
	a := p.args(n)
	got, err := readSync(p.call(a.sync(&n.q)))
	require.NoError(p.t, err)
	want := p.model.Sync(p.now, &p.cfg, &n.q)
	const tiny = 1e-6
	require.InDelta(p.t, want.Grant, got.Grant, tiny)
	require.InDelta(p.t, want.Gift, got.Gift, tiny)
	require.InEpsilon(p.t, 1+want.Target, 1+got.Target, tiny)
	want.Grant, want.Gift, want.Target = got.Grant, got.Gift, got.Target
	require.Equal(p.t, want, got)
	n.replies = append(n.replies, got)
}

// step does one random thing to both.
func (p *leasePair) step() {
	p.now += float64(p.rng.IntN(60_000))
	n := p.nodes[p.rng.IntN(len(p.nodes))]
	switch k := p.rng.IntN(40); {
	case k < 3 && len(n.replies) > 0: // the same message once more
		p.sync(n)
	case k < 7:
		a, tokens := p.args(n), p.rng.Int64N(30)-5
		got, err := readTaken(p.call(a.take(tokens)))
		require.NoError(p.t, err)
		ok, left, wait := p.model.Take(p.now, &p.cfg, n.id, float64(tokens))
		require.Equal(p.t, ok, got.taken)
		require.InDelta(p.t, left, float64(got.left), 1)
		require.InDelta(p.t, wait, float64(got.wait.Microseconds()), 2)
		require.Equal(p.t, p.model.Nodes, got.nodes)
	case k == 7:
		a := p.args(n)
		n.q.Seq++
		p.call(a.release(&n.q))
		p.model.Release(p.now, &p.cfg, &n.q)
		n.q.Ack, n.q.Has = 0, 0
	case k == 8 && p.rng.IntN(3) == 0:
		p.loseState()
	default:
		p.ask(n)
	}
}

func (p *leasePair) loseState() {
	switch p.rng.IntN(5) {
	case 0:
		p.server.Do("FLUSHALL")
		p.model.Flush()
	case 1:
		p.now -= 3.6e9
	case 2:
		p.now += 3.6e9
	case 3:
		p.server.Do("DEL", p.keys[0])
		p.model.Made, p.model.Entries = false, nil
	case 4: // nobody is there for a while
		p.now += 900_000
	}
}

// ask is a sync by a node that acknowledges any of the last replies, uses some of it and claims it or not.
func (p *leasePair) ask(n *pairNode) {
	n.q.Seq += 1 + p.rng.Uint64N(2)
	if len(n.replies) > 0 && p.rng.IntN(5) > 0 {
		r := n.replies[max(0, len(n.replies)-1-p.rng.IntN(3))]
		n.q.Ack, n.q.Has, n.q.Epoch = r.Seq, r.Grant, r.Epoch
		if p.rng.IntN(4) == 0 {
			n.q.Has *= p.rng.Float64()
		}
		n.q.Claim = n.q.Has * float64(p.rng.IntN(2))
		n.q.Hold = n.q.Has * float64(p.rng.IntN(4)/3)
	}
	if p.rng.IntN(3) == 0 {
		n.q.Want = p.rng.ExpFloat64() * p.cfg.Rate / 3
	}
	p.sync(n)
}

// The script and the model are the same algorithm: they agree on every figure, whatever comes.
func TestLeaseScriptIsTheModel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, err := call.New(call.Options{Kind: "lease", Client: server.Client(), Timeout: 10 * time.Second})
	require.NoError(t, err)
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := &leasePair{
			t: t, conn: c, script: call.NewScript(fakeClockLua, leaseLua), keys: []string{"{pair}:lease", "{pair}:mark"}, rng: rng, server: server,
			cfg: machine.Config{Rate: 1000, Burst: 40, Interval: 200 * time.Millisecond, TTL: 600 * time.Millisecond}, now: 1.7e15,
		}
		if seed%4 == 1 {
			p.cfg.Reclaim = time.Second
		}
		if seed%4 == 2 {
			p.cfg.Rate = 9
		}
		for i := range 2 + rng.IntN(24) {
			p.nodes = append(p.nodes, &pairNode{id: "node" + strconv.Itoa(i), q: machine.Request{Node: "node" + strconv.Itoa(i), Weight: 1 + float64(rng.IntN(3))}})
		}
		server.Do("FLUSHALL")
		for range 400 {
			p.step()
		}
		require.Positive(t, server.Client().PTTL(context.Background(), p.keys[0]).Val())
	}
}
