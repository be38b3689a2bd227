package lease

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/reason"
	"github.com/spillway-go/spillway/cluster/lease/internal/machine"
)

const (
	// maxBatch is how many leases are renewed in one pipeline.
	maxBatch = 256
	// worthwhile is the number of tokens per interval from which a lease begins: twice the number that keeps it.
	worthwhile = 2 * machine.MinTokens
)

// A loop renews the leases of a Limit: one goroutine, with at most one request in flight per key.
type loop struct {
	q     *Limit
	set   *ruleSet // in force at the last look
	keys  keyHeap
	due   []*keyState
	freed [][]any // commands that give leases back
}

// keyHeap orders keys by the time of their next look; the earliest is on top.
type keyHeap []*keyState

func (h keyHeap) Len() int           { return len(h) }
func (h keyHeap) Less(i, j int) bool { return h[i].look < h[j].look }
func (h keyHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push adds a key.
func (h *keyHeap) Push(x any) {
	k := x.(*keyState) //nolint:forcetypeassert // nothing else is pushed
	k.place = len(*h)
	*h = append(*h, k)
}

// Pop removes the last key.
func (h *keyHeap) Pop() any {
	old := *h
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	k.place = -1
	return k
}

// run renews leases until the Limit is closed, and then releases all of them.
func (l *loop) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := l.q.now()
		l.round(now)
		wait := time.Hour
		if len(l.keys) > 0 {
			wait = max(l.keys[0].look-l.q.now(), 0)
		}
		timer.Reset(wait)
		select {
		case <-l.q.quit:
			l.releaseAll()
			return
		case <-l.q.fresh.wake:
			for _, k := range l.q.fresh.take() {
				l.insert(k)
			}
			l.lookAtAll()
		case <-timer.C:
		}
	}
}

// insert adds a new key, or looks at a known key at once.
func (l *loop) insert(k *keyState) {
	if k.place >= 0 {
		k.look = l.q.now()
		heap.Fix(&l.keys, k.place)
	} else if l.q.known(k.key) == k {
		heap.Push(&l.keys, k)
	}
}

// lookAtAll schedules a look at every key if the limit has changed.
func (l *loop) lookAtAll() {
	set := l.q.limit.Load()
	if l.set == set {
		return
	}
	l.set = set
	now := l.q.now()
	for _, k := range l.keys { // all get the same time, so the order of the heap stays valid
		k.look = now
	}
	l.q.late.node.SetConfig(now, &set.cfg)
}

// round looks at the keys that are due.
func (l *loop) round(now time.Duration) {
	for len(l.keys) > 0 && l.keys[0].look <= now && len(l.due) < maxBatch && len(l.freed) < maxBatch {
		k := l.keys[0]
		sync, forget := l.visit(k, now)
		switch {
		case forget:
			heap.Pop(&l.keys)
			l.q.forget(k)
			continue
		case sync:
			l.due = append(l.due, k)
			k.look = now + l.q.config().Interval // until the reply sets a better time
		}
		k.look = max(k.look, now+time.Millisecond)
		heap.Fix(&l.keys, 0)
	}
	l.flush()
	if len(l.due) > 0 {
		l.renew(l.due)
		clear(l.due)
		l.due = l.due[:0]
	}
}

// visit decides what to do about a key, and sets the time of its next look.
func (l *loop) visit(k *keyState, now time.Duration) (sync, forget bool) {
	set := l.q.limit.Load()
	cfg := &set.cfg
	if k.set != set {
		k.set = set
		k.node.SetConfig(now, cfg)
	}
	asked := float64(k.offered.Load() - k.counted)
	k.counted += int64(asked)
	if asked > 0 {
		k.usedAt = now
	}
	if dt := now - k.looked; dt > 0 {
		k.rate = asked / dt.Seconds()
	}
	k.looked = now
	idle := now-k.usedAt > 2*cfg.TTL
	if !k.local.Load() && !k.node.Seeking() {
		k.look = now + cfg.Interval
		if idle {
			return false, true
		}
		if l.promotes(k, asked) {
			k.lowSince = now
			k.node.Seek(now, asked)
			return true, false
		}
		k.node.Skip(now)
		return false, false
	}
	if l.worth(k, now) && !idle {
		k.look = k.node.Observe(now, asked)
		return now >= k.node.Due(), false
	}
	l.release(k, now)
	k.look = now + cfg.Interval
	return false, idle
}

// promotes reports whether a key that Redis decides should have a lease.
func (l *loop) promotes(k *keyState, asked float64) bool {
	cfg := &k.set.cfg
	dry := k.dry.Swap(false)
	share := cfg.Rate * cfg.Interval.Seconds() / float64(max(l.q.nodes.Load(), 1))
	return share >= worthwhile && (asked >= worthwhile || k.rate*cfg.Interval.Seconds() >= worthwhile || dry && asked > 0)
}

// worth reports whether a lease is worth its renewal. It says no only after the lease has not been worth it for some
// time.
func (l *loop) worth(k *keyState, now time.Duration) bool {
	cfg := &k.set.cfg
	v := k.node.View()
	few := cfg.Rate*cfg.Interval.Seconds()/float64(v.Nodes) < machine.MinTokens
	if !few && (v.Hungry || k.rate*cfg.Interval.Seconds() >= 1) {
		k.lowSince = now
	}
	return now-k.lowSince <= 2*cfg.TTL
}

// renew asks Redis for the leases of keys in one pipeline.
func (l *loop) renew(keys []*keyState) {
	q := l.q
	commands := make([][]any, len(keys))
	for i, k := range keys {
		if !k.local.Load() {
			arrived := make(chan struct{})
			k.granting.Store(&arrived)
		}
		commands[i] = q.script.Command(k.names, k.set.args.sync(k.node.Begin(q.now(), 0)))
	}
	replies, errs := q.sync.RunAll(context.Background(), q.script, commands)
	now := q.now()
	for i, k := range keys {
		q.tally.syncs.Add(1)
		var r machine.Reply
		err := errs[i]
		if err == nil {
			r, err = readSync(replies[i])
		}
		if err == nil && !k.node.Apply(now, &r) {
			err = errLate
		}
		if err != nil {
			q.tally.failures.Add(1)
			k.node.Fail(now)
		} else {
			q.nodes.Store(int64(k.node.View().Nodes))
		}
		k.local.Store(k.node.Leased())
		if arrived := k.granting.Swap(nil); arrived != nil {
			close(*arrived)
		}
		k.view.Store(&view{View: k.node.View(), err: err})
		k.look = min(k.node.Due(), now+max(k.set.cfg.Interval/4, minInterval))
		if k.place >= 0 {
			heap.Fix(&l.keys, k.place)
		}
	}
}

// errLate is the error of a lease that was granted too late.
var errLate = &cluster.RedisError{Reason: reason.Timeout, Err: errors.New("the reply came too late, or was to another request")}

// release returns a lease with the next flush. If that message is lost, the lease expires by itself.
func (l *loop) release(k *keyState, now time.Duration) {
	k.local.Store(false)
	req := k.node.Release(now)
	k.node.Skip(now)
	k.view.Store(&view{View: k.node.View()})
	l.freed = append(l.freed, l.q.script.Command(k.names, k.set.args.release(req)))
}

// flush sends the queued releases, and reports whether Redis answered.
func (l *loop) flush() bool {
	if len(l.freed) == 0 {
		return true
	}
	_, errs := l.q.sync.RunAll(context.Background(), l.q.script, l.freed)
	clear(l.freed)
	l.freed = l.freed[:0]
	return errs[0] == nil
}

// releaseAll returns all leases, in as few messages as possible, and stops when Redis does not answer.
func (l *loop) releaseAll() {
	answers := true
	for _, k := range l.keys {
		if !k.local.Load() && !k.node.Seeking() {
			continue
		}
		l.release(k, l.q.now())
		switch {
		case !answers:
			l.freed = l.freed[:0]
		case len(l.freed) == maxBatch:
			answers = l.flush()
		}
	}
	l.flush()
}
