package lock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

// testClock is a clock for scripts that a test sets: the last argument is the time.
const testClock = "local now = tonumber(table.remove(ARGV))"

// semModel does what the scripts of a semaphore do, in the plainest way.
type semModel struct {
	now     int64
	holders map[string]int64 // end
	fences  map[string]int64
	queue   []string // in order
	until   map[string]int64
	dead    map[string]int64
	last    int64
}

func newSemModel() *semModel {
	return &semModel{holders: map[string]int64{}, fences: map[string]int64{}, until: map[string]int64{}, dead: map[string]int64{}}
}

func (m *semModel) advance(now int64) {
	m.now = now
	for token, end := range m.holders {
		if end <= now {
			delete(m.holders, token)
		}
	}
	m.queue = slices.DeleteFunc(m.queue, func(token string) bool { return m.until[token] <= now })
	for token, end := range m.dead {
		if end <= now {
			delete(m.dead, token)
		}
	}
}

func (m *semModel) number() int64 {
	m.last = max(m.last+1, m.now)
	return m.last
}

func (m *semModel) acquire(token string, limit, ttl, wait, room, brief int64) []int64 {
	held := int64(len(m.holders))
	if m.dead[token] > 0 {
		return []int64{-2, 0, held}
	}
	if m.holders[token] > 0 {
		m.holders[token] = m.now + ttl
		return []int64{1, m.fences[token], held}
	}
	place := slices.Index(m.queue, token)
	queued := place >= 0
	if !queued {
		place = len(m.queue)
	}
	if int64(place) < limit-held {
		m.queue = slices.DeleteFunc(m.queue, func(t string) bool { return t == token })
		m.holders[token], m.fences[token] = m.now+ttl, m.number()
		if limit-held > 1 {
			m.wake(limit, brief)
		}
		return []int64{1, m.fences[token], held + 1}
	}
	if wait == 0 || !queued && int64(place) >= room {
		return []int64{-1, 0, held}
	}
	if !queued {
		m.queue = append(m.queue, token)
		m.number()
	}
	m.until[token] = m.now + wait
	if held < limit {
		m.wake(limit, brief)
	}
	left := int64(0)
	for _, end := range m.holders {
		if left == 0 || end-m.now < left {
			left = end - m.now
		}
	}
	return []int64{0, left, held, int64(place) + 1}
}

func (m *semModel) renew(ttl, anew int64, tokens []string) []int64 {
	out := make([]int64, len(tokens))
	for i, token := range tokens {
		switch {
		case m.holders[token] > 0:
		case anew == 1 && m.dead[token] == 0:
			m.fences[token] = m.number()
		default:
			continue
		}
		m.holders[token], out[i] = m.now+ttl, 1
	}
	return out
}

// wake has those at the head of the queue for whom there is room answer soon.
func (m *semModel) wake(limit, brief int64) {
	for i := range min(limit-int64(len(m.holders)), int64(len(m.queue))) {
		m.until[m.queue[i]] = min(m.until[m.queue[i]], m.now+brief)
	}
}

func (m *semModel) release(limit, grave, brief int64, tokens []string) []int64 {
	n := int64(0)
	for _, token := range tokens {
		if m.holders[token] > 0 {
			n++
		}
		delete(m.holders, token)
		m.queue = slices.DeleteFunc(m.queue, func(t string) bool { return t == token })
		if grave > 0 {
			m.dead[token] = m.now + grave
		}
	}
	m.wake(limit, brief)
	return []int64{n}
}

// runModel compares the scripts with the model after each of many random calls.
func runModel(t *testing.T, client *redis.Client, rng *rand.Rand, name string) {
	c, err := call.New(call.Options{Kind: "lock", Client: client, Timeout: 10 * time.Second})
	require.NoError(t, err)
	s := &Semaphore{base: "spillway:sem:{" + name + ":"}
	scripts, keys, m := newScripts(testClock, "spillway:wake:"), s.keys("k"), newSemModel()
	now := int64(1_700_000_000_000_000)
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	pick := func() string { return names[rng.IntN(len(names))] }
	some := func() []string { return []string{pick(), pick()} }
	for i := range 1500 {
		if rng.IntN(3) > 0 {
			now += rng.Int64N(3_000_000)
		}
		m.advance(now)
		limit, ttl, wait, brief := 1+rng.Int64N(4), 10_000_000+rng.Int64N(5)*1_000_000, int64(0), 1+rng.Int64N(6_000_000)
		var want, got []int64
		var err error
		var call string
		switch op := rng.IntN(10); {
		case op < 5:
			token := pick()
			if rng.IntN(3) > 0 {
				wait = 5_000_000
			}
			room := rng.Int64N(6)
			call = fmt.Sprint("acquire ", token, limit, ttl, wait, room)
			want = m.acquire(token, limit, ttl, wait, room, brief)
			got, err = c.Run(t.Context(), scripts.acquire, keys, token, limit, ttl, wait, room, brief, now)
		case op < 7:
			tokens, anew := some(), rng.Int64N(4)/3
			call = fmt.Sprint("renew ", tokens, ttl, anew)
			want = m.renew(ttl, anew, tokens)
			got, err = c.Run(t.Context(), scripts.renew, keys, ttl, anew, tokens[0], tokens[1], now)
		case op < 9:
			tokens, grave := some(), rng.Int64N(4)/3*8_000_000
			call = fmt.Sprint("release ", tokens, grave)
			want = m.release(limit, grave, brief, tokens)
			got, err = c.Run(t.Context(), scripts.release, keys, limit, grave, brief, tokens[0], tokens[1], now)
		default:
			call = "peek"
			want = []int64{int64(len(m.holders)), int64(len(m.queue))}
			got, err = c.Run(t.Context(), scripts.peek, keys, now)
		}
		require.NoError(t, err)
		require.Equal(t, want, got, "call %d at %d: %s", i, now, call)
	}
}

// A server clock that steps back by an hour, as that of a replica may, keeps a permit for its TTL and not for an hour.
func TestSemaphoreServerClockStepsBack(t *testing.T) {
	s := semaphoreModelAt(t)
	const hour, ttl = int64(3600_000_000), int64(10_000_000)
	now := int64(1_700_000_000_000_000)
	run := func(sc *call.Script, args ...any) []int64 {
		got, err := s.conn.Run(t.Context(), sc, s.keys("k"), append(args, now)...)
		require.NoError(t, err)
		return got
	}
	first := run(s.scripts.acquire, "a", 1, ttl, 0, 0, 1_000_000)
	require.Equal(t, int64(1), first[0])
	require.Equal(t, int64(0), run(s.scripts.acquire, "b", 1, ttl, 1_000_000, 9, 1_000_000)[0])
	now -= hour
	require.Equal(t, int64(-1), run(s.scripts.acquire, "c", 1, ttl, 0, 0, 1_000_000)[0])
	now += ttl + 1
	require.Equal(t, int64(-1), run(s.scripts.acquire, "c", 1, ttl, 0, 0, 1_000_000)[0], "the dead one in the queue has a minute at most")
	now += 60_000_001
	again := run(s.scripts.acquire, "c", 1, ttl, 0, 0, 1_000_000)
	require.Equal(t, int64(1), again[0])
	require.Greater(t, again[1], first[1], "numbers go on growing")
}

func semaphoreModelAt(t *testing.T) *Semaphore {
	s := semaphoreAt(t, redistest.Start(t).Addr(), Options{Limit: 1})
	s.scripts = newScripts(testClock, "spillway:wake:")
	return s
}

// A lease, under random calls that are lost, late, refused or answered, is never live after it has ended at the server, which
// counts from when the call ran.
func TestSemLeaseAgainstServer(t *testing.T) {
	start := time.Now()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		const ttl, guard = 1000 * time.Millisecond, 100 * time.Millisecond
		now := start
		sent := now
		now = now.Add(time.Duration(rng.Int64N(int64(ttl / 2))))
		serverEnd := now.Add(ttl)
		l := tenure{ttl: ttl, guard: guard, from: sent}
		type reply struct {
			sent, at time.Time
			yes      bool
		}
		var replies []reply
		renewals := 0
		for range 400 {
			now = now.Add(time.Duration(rng.Int64N(int64(40 * time.Millisecond))))
			for len(replies) > 0 && !replies[0].at.After(now) {
				r := replies[0]
				replies = replies[1:]
				if r.yes {
					l.renewed(r.sent, now)
				} else {
					l.refused()
				}
			}
			step := l.step(now)
			if step != stepOver {
				require.True(t, now.Before(serverEnd.Add(-guard+time.Nanosecond)) || now.Before(serverEnd), "seed %d", seed)
				require.True(t, now.Before(serverEnd), "seed %d: live after its end", seed)
			}
			if step != stepRenew || len(replies) > 0 {
				continue
			}
			if rng.IntN(4) == 0 { // lost on the way
				l.unanswered(now)
				require.Equal(t, stepKeep, l.step(now), "no storm of retries")
				continue
			}
			ran := now.Add(time.Duration(rng.Int64N(int64(30 * time.Millisecond))))
			yes := ran.Before(serverEnd)
			if yes {
				serverEnd = ran.Add(ttl)
				renewals++
			}
			if rng.IntN(4) > 0 { // otherwise the answer is lost
				replies = append(replies, reply{now, ran.Add(time.Duration(rng.Int64N(int64(60 * time.Millisecond)))), yes})
			} else {
				l.unanswered(now)
			}
		}
		require.Positive(t, renewals)
	}
}

func TestSemLease(t *testing.T) {
	t0 := time.Now()
	l := tenure{ttl: 9 * time.Second, guard: time.Second, from: t0}
	require.Equal(t, stepKeep, l.step(t0.Add(3*time.Second-1)))
	require.Equal(t, stepRenew, l.step(t0.Add(3*time.Second)))
	l.unanswered(t0.Add(3 * time.Second))
	require.Equal(t, stepKeep, l.step(t0.Add(3*time.Second)))
	require.Equal(t, stepRenew, l.step(t0.Add(4*time.Second)))
	require.True(t, l.renewed(t0.Add(4*time.Second), t0.Add(5*time.Second)))
	require.True(t, l.renewed(t0.Add(3*time.Second), t0.Add(5*time.Second)), "an older yes changes nothing")
	require.Equal(t, t0.Add(12*time.Second), l.ends())
	require.Equal(t, stepRenew, l.step(t0.Add(12*time.Second-1)))
	require.Equal(t, stepOver, l.step(t0.Add(12*time.Second)))
	require.False(t, l.renewed(t0.Add(11*time.Second), t0.Add(12*time.Second)), "a yes that comes too late")
	require.Equal(t, stepOver, l.step(t0))
}
