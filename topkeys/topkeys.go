package topkeys

import (
	"cmp"
	"context"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

const (
	most     = 20          // keys in the list
	least    = 0.01        // share of the refusals of a key in the list
	halfLife = time.Minute // of a count
	shards   = 16
	slots    = 32 // of a shard: its counts are too high by a 32nd of its refusals at most
	maxKey   = 48 // bytes that are kept of a key
)

// A Sketch is a [spillway.Policy] that admits every request, and counts by [spillway.Request.Key] those that a later
// policy of its [spillway.Gate] refuses, or that gave up in its queue. Counts are halved every minute, so the list shows recent refusals.
//
// It keeps 512 counts, by the algorithm Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent
// and Top-k Elements in Data Streams", 2005), in 50 KB. So a client that invents keys can neither make it grow nor hide. A
// refusal neither waits for another one nor allocates: one that arrives while its part of the keys is being counted is left
// out.
//
// It is made by [New] and safe for concurrent use; the zero Sketch counts nothing. It owns no goroutine and needs no Close.
type Sketch struct {
	seed  maphash.Seed
	parts [shards]part
}

// A Key is a key whose requests are refused.
type Key struct {
	Key   string  // at most its first 48 bytes, and "…" if there are more
	Share float64 // of all refusals, from 0.01 to 1; the true share is not lower
}

// A part counts the keys of some hashes.
type part struct {
	mu    sync.Mutex
	since time.Time // of the last halving
	total int64
	slots [slots]slot
}

// A slot counts one key, beginning at over, which belongs to the keys before it.
type slot struct {
	hash        uint64
	count, over int64
	key         [maxKey]byte
	length      int
}

// New returns a Sketch that has seen nothing.
func New() *Sketch { return &Sketch{seed: maphash.MakeSeed()} }

// Admit admits r.
func (*Sketch) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, nil }

// Done counts r if a later policy refused it.
func (s *Sketch) Done(r spillway.Request, _ spillway.Ticket, res spillway.Result) {
	if res.Outcome != spillway.Refused || s.seed == (maphash.Seed{}) {
		return
	}
	hash := maphash.String(s.seed, r.Key)
	p := &s.parts[hash%shards]
	if p.mu.TryLock() {
		p.add(r.Arrived, hash, r.Key)
		p.mu.Unlock()
	}
}

// add counts a key: in its own slot, or in that of the smallest count.
func (p *part) add(now time.Time, hash uint64, key string) {
	p.fade(now)
	p.total++
	at := 0
	for i := range p.slots {
		if p.slots[i].hash == hash && p.slots[i].count > 0 {
			p.slots[i].count++
			return
		}
		if p.slots[i].count < p.slots[at].count {
			at = i
		}
	}
	own := &p.slots[at]
	own.hash, own.over, own.length = hash, own.count, len(key)
	own.count++
	copy(own.key[:], key)
}

// fade halves the counts once for each half-life that has passed.
func (p *part) fade(now time.Time) {
	times := now.Sub(p.since) / halfLife
	if times <= 0 {
		return
	}
	p.since = now
	by := min(uint(times), 63)
	p.total >>= by
	for i := range p.slots {
		p.slots[i].count >>= by
		p.slots[i].over >>= by
	}
}

// Top returns the keys with at least a hundredth of the refusals at now, at most twenty, the one refused most first.
func (s *Sketch) Top(now time.Time) []Key {
	var all []slot
	total := int64(0)
	for i := range s.parts {
		p := &s.parts[i]
		p.mu.Lock()
		p.fade(now)
		total += p.total
		for _, one := range p.slots {
			if one.count > one.over && one.length > 0 {
				all = append(all, one)
			}
		}
		p.mu.Unlock()
	}
	var keys []Key
	for i := range all {
		if share := float64(all[i].count-all[i].over) / float64(total); share >= least {
			keys = append(keys, Key{all[i].text(), share})
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Key, b.Key)) })
	return keys[:min(len(keys), most)]
}

// text returns the key.
func (s *slot) text() string {
	if s.length > maxKey {
		return strings.ToValidUTF8(string(s.key[:]), "") + "…"
	}
	return strings.ToValidUTF8(string(s.key[:s.length]), "�")
}

// Metrics yields the keys of [Sketch.Top] with the label key, which only the live page shows, if it is asked to.
func (s *Sketch) Metrics() iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		for _, k := range s.Top(time.Now()) {
			if !yield(stats.Metric{
				Name: "spillway.keys.refused", Unit: "1", Help: "Share of the refusals of a gate that are of one key, at least.",
				Labels: []stats.Label{{Name: "key", Value: k.Key}}, Value: k.Share, Of: s,
			}) {
				return
			}
		}
	}
}

var (
	_ spillway.Policy = (*Sketch)(nil)
	_ stats.Source    = (*Sketch)(nil)
)
