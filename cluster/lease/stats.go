package lease

import (
	"encoding/json"
	"time"

	"github.com/spillway-go/spillway/cluster"
)

// Stats is a snapshot of a [Limit].
type Stats struct {
	Name           string
	Keys           int64 // keys that are kept now
	Leased         int64 // keys that are decided locally
	AdmittedTokens int64 // tokens let through
	RefusedTokens  int64 // tokens refused
	Asked          int64 // requests that asked Redis
	Unanswered     int64 // requests decided without Redis because it did not answer
	Syncs          int64 // renewals of leases
	Failures       int64 // renewals without an answer in time
	Nodes          int64 // processes that share the limit, as far as known
}

// Stats returns a snapshot. It looks at every key.
func (q *Limit) Stats() Stats {
	if q.reject == nil {
		return Stats{}
	}
	st := Stats{
		Name: q.name, Keys: q.keys.count.Load(), Asked: q.tally.direct.Value(), Unanswered: q.tally.lost.Value(),
		Syncs: q.tally.syncs.Value(), Failures: q.tally.failures.Value(), Nodes: q.nodes.Load(),
	}
	offered, refused := q.tally.offered.Value(), q.tally.refused.Value()
	add := func(k *keyState) {
		refused += k.refused.Load() // before offered, so that the difference is never negative
		offered += k.offered.Load()
		if k.local.Load() {
			st.Leased++
		}
	}
	add(q.late)
	for i := range q.keys.shards {
		s := &q.keys.shards[i]
		s.mu.RLock()
		for _, k := range s.keys {
			add(k)
		}
		s.mu.RUnlock()
	}
	st.AdmittedTokens, st.RefusedTokens = max(offered-refused, 0), refused
	return st
}

// KeyStats is the state of one key of a [Limit].
type KeyStats struct {
	Source         cluster.Source // source of the present decisions: FromRedis if there is no lease
	Grant          float64        // tokens per second granted to this process
	Want           float64        // tokens per second that it wants
	Nodes          int            // processes that share the limit of the key
	Hungry         bool           // the total demand exceeds the rate
	Epoch          string         // changes when Redis has lost its data
	Age            time.Duration  // since the last renewal was sent
	AdmittedTokens int64          // tokens let through
	RefusedTokens  int64          // tokens refused
	Err            error          // why the last renewal failed, or nil
}

// MarshalJSON returns the fields of s by name. Err is its text, or null.
func (s KeyStats) MarshalJSON() ([]byte, error) {
	type plain KeyStats
	out := struct {
		plain
		Err *string
	}{plain: plain(s)}
	if s.Err != nil {
		text := s.Err.Error()
		out.Err = &text
	}
	return json.Marshal(out) //nolint:wrapcheck,musttag // package json calls this; the names of the fields are the keys
}

// KeyStats returns a snapshot of a key, and false if it is not kept.
func (q *Limit) KeyStats(key string) (KeyStats, bool) {
	k := q.known(key)
	if k == nil {
		return KeyStats{}, false
	}
	now, v := q.now(), k.view.Load()
	st := KeyStats{Want: v.Want, Nodes: v.Nodes, Hungry: v.Hungry, Epoch: v.Epoch, Age: max(now-v.SyncedAt, 0), Err: v.err}
	if k.local.Load() {
		t := k.node.Bucket.Terms(now)
		st.Source, st.Grant = sourceOf(t.From), t.Rate
	}
	st.RefusedTokens = k.refused.Load()
	st.AdmittedTokens = max(k.offered.Load()-st.RefusedTokens, 0)
	return st, true
}
