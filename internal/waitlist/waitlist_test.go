package waitlist

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

const (
	ms      = int64(time.Millisecond)
	second  = int64(time.Second)
	forever = math.MaxInt64
)

func fair(maxQueue int) *List {
	return &List{Order: Fair, MaxQueue: maxQueue, MaxWait: second, Target: 5 * ms, Interval: second, Seed: 1}
}

// A rig asks a List at a time of its own, and checks what holds at any time.
type rig struct {
	t   *testing.T
	q   *List
	now int64
}

// join lets a guest wait.
func (r *rig) join(key string, p spillway.Priority) *Guest {
	r.t.Helper()
	g, v := r.ask(key, p)
	require.Equal(r.t, Queued, v)
	return g
}

func (r *rig) ask(key string, p spillway.Priority) (*Guest, Verdict) {
	g, _, v := r.q.Enqueue(r.now, Guest{N: 1, Priority: p, Key: key}, forever)
	return g, v
}

// serve lets the next guests run, and returns their keys.
func (r *rig) serve(n int) (keys []string) {
	for range n {
		g := r.q.Next(r.now)
		if g == nil {
			break
		}
		r.q.Served(r.now, g.N)
		r.q.Settle(g, Runs)
		keys = append(keys, g.Key)
	}
	return keys
}

func count(keys []string) map[string]int {
	n := map[string]int{}
	for _, key := range keys {
		n[key]++
	}
	return n
}

// A key with a thousand waiting requests delays a key with a few by one request each.
func TestFairTakesTurns(t *testing.T) {
	r := &rig{t: t, q: fair(2000)}
	for range 1000 {
		r.join("heavy", 0)
	}
	for range 10 {
		r.join("light", 0)
		r.join("other", 0)
	}
	require.Equal(t, map[string]int{"heavy": 10, "light": 10, "other": 10}, count(r.serve(30)))
	require.Equal(t, []string{"heavy", "heavy"}, r.serve(2), "the turns that others leave")
}

// A key that was idle has no turns saved up, and one that was served has none to make up for.
func TestFairForgetsThePast(t *testing.T) {
	r := &rig{t: t, q: fair(1000)}
	for range 300 {
		r.join("busy", 0)
	}
	r.serve(200)
	for range 50 {
		r.join("late", 0)
	}
	require.InDelta(t, 25, count(r.serve(50))["late"], 1)
}

func TestFairByWeight(t *testing.T) {
	r := &rig{t: t, q: fair(1000)}
	for range 100 {
		r.join("one", 0)
		_, _, v := r.q.Enqueue(r.now, Guest{N: 1, Key: "two", Weight: 2}, forever)
		require.Equal(t, Queued, v)
	}
	require.InDelta(t, 60, count(r.serve(90))["two"], 1)
}

// A request that needs several places uses as many turns.
func TestFairByCost(t *testing.T) {
	r := &rig{t: t, q: fair(1000)}
	for range 100 {
		r.join("small", 0)
		_, _, v := r.q.Enqueue(r.now, Guest{N: 4, Key: "large"}, forever)
		require.Equal(t, Queued, v)
	}
	require.InDelta(t, 20, count(r.serve(100))["large"], 1)
}

// Requests without a key are not one large key.
func TestFairWithoutKeys(t *testing.T) {
	r := &rig{t: t, q: fair(1000)}
	for range 60 {
		r.join("", 0)
		r.join("tenant", 0)
	}
	require.Less(t, count(r.serve(60))["tenant"], 15)
}

// Few of the light keys share all their lines with heavy ones, although these are a quarter as many as there are lines.
func TestShuffleSharding(t *testing.T) {
	r := &rig{t: t, q: fair(1 << 20)}
	for key := range 16 {
		for range 1000 {
			r.join("heavy"+strconv.Itoa(key), 0)
		}
	}
	behind := 0
	for key := range 1000 {
		g := r.join("light"+strconv.Itoa(key), 0)
		if g.line.guests > 100 {
			behind++
		}
	}
	require.LessOrEqual(t, behind, 5, "(1/4)^6 of a thousand is less than one")
}

// When the list is full, the key with the most requests loses its newest, and a key that is no longer than others waits
// outside.
func TestFullListOustsTheLongestKey(t *testing.T) {
	r := &rig{t: t, q: fair(10)}
	var heavy []*Guest
	for range 9 {
		heavy = append(heavy, r.join("heavy", 0))
	}
	light := r.join("light", 0)
	_, v := r.ask("heavy", 0)
	require.Equal(t, Full, v, "the newcomer of the longest key")
	for i := range 4 {
		r.join("light", 0)
		require.Equal(t, Ousted, heavy[8-i].Fate)
	}
	_, v = r.ask("light", 0)
	require.Equal(t, Full, v, "five are as many as the others have")
	require.Equal(t, Waits, light.Fate)
	r.join("urgent", 4)
	_, v = r.ask("batch", -4)
	require.Equal(t, Full, v, "a lower priority ousts none")
	require.Equal(t, 10, r.q.Len())
	require.Equal(t, "urgent", r.serve(1)[0])
	require.Len(t, r.serve(10), 9)
}

// A light key is not ousted because it shares a line with a heavy one.
func TestOustingSparesLightKeysOfALongLine(t *testing.T) {
	r := &rig{t: t, q: fair(0)}
	for i := range 200 { // no line is free of them
		for range 20 {
			r.q.MaxQueue++
			r.join("heavy"+strconv.Itoa(i), 0)
		}
	}
	var lights []*Guest
	for i := range 200 {
		lights = append(lights, r.join("light"+strconv.Itoa(i), 0))
	}
	for _, g := range lights {
		require.Equal(t, Waits, g.Fate)
	}
}

// One place in a thousand goes to the lowest priority, which waits for ever otherwise.
func TestLowestPriorityDoesNotStarve(t *testing.T) {
	for _, order := range []Order{FIFO, LIFO, Adaptive, Fair} {
		r := &rig{t: t, q: fair(10)}
		r.q.Order = order
		for range 3 {
			r.join("low", -4)
		}
		r.join("middle", 0)
		low := 0
		for range 2500 {
			r.join("high", 4)
			low += count(r.serve(1))["low"]
		}
		require.Equal(t, 2, low, "%v", order)
	}
}

// A request whose turn would come too late is refused at once, by the pace of the list.
func TestExpectedWaits(t *testing.T) {
	r := &rig{t: t, q: fair(1000)}
	for range 100 {
		r.join("a", 0)
	}
	ask := func(key string, left int64) Verdict {
		_, _, v := r.q.Enqueue(r.now, Guest{N: 1, Key: key}, left)
		return v
	}
	require.Equal(t, Queued, ask("b", ms), "no pace is known")
	for range 20 {
		r.now += 10 * ms
		r.serve(1)
	}
	require.Equal(t, Queued, ask("c", 100*ms), "it takes turns with two others")
	require.Equal(t, TooLate, ask("a", 100*ms), "80 before it, 10 ms each")
	require.Equal(t, TooLate, ask("c", ms))
	require.Equal(t, TooLate, ask("c", -1), "a deadline that has passed")
	for range 18 {
		require.Equal(t, Queued, ask("a", forever), "within the longest wait")
	}
	require.Equal(t, TooLong, ask("a", forever))
	r.q.Order = LIFO
	require.Equal(t, Queued, ask("a", 50*ms), "the last to come is next")
}

// A pace that was measured in an incident refuses no requests after it.
func TestOldPaceDoesNotCount(t *testing.T) {
	r := &rig{t: t, q: fair(10)}
	for range 10 {
		r.join("a", 0)
	}
	for range 10 {
		r.now += 2 * second
		r.serve(1)
	}
	_, v := r.ask("a", 0)
	require.Equal(t, TooLong, v, "two seconds a request")
	r.now += second
	_, v = r.ask("a", 0)
	require.Equal(t, TooLong, v)
	r.now++
	r.join("a", 0)
	r.join("a", 0)
	r.now += 10 * second
	r.join("a", 0)
	require.Len(t, r.serve(3), 3)
}

// While requests wait more than they do not, new ones wait for a short time only.
func TestStandingList(t *testing.T) {
	r := &rig{t: t, q: fair(1000)}
	wait := func() int64 {
		_, wait, v := r.q.Enqueue(r.now, Guest{N: 1}, forever)
		require.Equal(t, Queued, v)
		return wait
	}
	run := func(n int) { // without a pace
		for range n {
			r.q.Settle(r.q.Next(r.now), Runs)
		}
	}
	for range 10 { // bursts of 0.6 s every 1.5 s
		require.Equal(t, second, wait())
		r.now += 600 * ms
		require.Equal(t, second, wait())
		run(2)
		r.now += 900 * ms
	}
	wait()
	r.now += second
	require.Equal(t, second, wait())
	r.now++
	require.Equal(t, 5*ms, wait(), "a second, and it has not been empty")
	r.now += 10 * second
	require.Equal(t, 5*ms, wait())
	run(4)
	r.now += 1500 * ms
	require.Equal(t, second, wait())
	r.now += 400 * ms
	require.Equal(t, second, wait(), "it was empty for 1.5 s of the 2 s that count at most")
}

// The state stays small, whatever keys and priorities clients invent, and is empty in the end.
func TestMemoryIsBounded(t *testing.T) {
	r := &rig{t: t, q: fair(100)}
	for i := range 100_000 {
		r.ask(fmt.Sprint("key", i), spillway.Priority(i%7))
		if i%3 == 0 {
			r.serve(1)
		}
		flows := 0
		for _, l := range r.q.levels {
			flows += len(l.flows)
		}
		require.LessOrEqual(t, flows, 100)
		require.LessOrEqual(t, len(r.q.levels), 7)
	}
	r.serve(100)
	require.Zero(t, r.q.Len())
	require.Empty(t, r.q.levels)
	require.Empty(t, r.q.spare.flows)
	require.Zero(t, r.q.spare.n)
}

// Random histories: no guest is lost or served twice, the requests of a key stay in order, and the counts are right.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		q := &List{Order: Fair, MaxQueue: 1 + rng.IntN(40), MaxWait: second, Target: 5 * ms, Interval: second, Seed: seed}
		h := &history{t: t, q: q, rng: rng, last: map[string]uint64{}}
		for range 3000 {
			h.step()
		}
		for _, g := range h.waiting {
			q.Leave(h.now, g)
		}
		require.Zero(t, q.Len())
		require.Empty(t, q.levels)
	}
}

type history struct {
	t       *testing.T
	q       *List
	rng     *rand.Rand
	now     int64
	waiting []*Guest
	last    map[string]uint64 // by key and priority, the last that ran
}

func (h *history) step() {
	h.now += h.rng.Int64N(10 * ms)
	switch k := h.rng.IntN(20); {
	case k < 10:
		key := ""
		if n := h.rng.IntN(8); n > 0 {
			key = strconv.Itoa(h.rng.IntN(n)) // low numbers are frequent
		}
		ask := Guest{N: 1 + h.rng.Int64N(3), Priority: spillway.Priority(h.rng.IntN(3)), Key: key}
		if g, _, v := h.q.Enqueue(h.now, ask, h.rng.Int64N(second)); v == Queued {
			h.waiting = append(h.waiting, g)
		} else {
			require.Nil(h.t, g)
		}
	case k < 17:
		h.serve()
	case k < 19:
		if len(h.waiting) > 0 {
			require.False(h.t, h.q.Leave(h.now, h.waiting[h.rng.IntN(len(h.waiting))]))
		}
	default:
		h.q.MaxQueue = 1 + h.rng.IntN(40)
	}
	h.check()
}

func (h *history) serve() {
	g := h.q.Next(h.now)
	if g == nil {
		require.Empty(h.t, h.waiting)
		return
	}
	first, _ := h.q.First()
	require.True(h.t, g.Priority == first || h.q.turns%trickle == trickle-1)
	if g.Key != "" {
		flow := fmt.Sprint(g.Key, "/", g.Priority)
		require.Greater(h.t, g.number, h.last[flow], "in order")
		h.last[flow] = g.number
	}
	h.q.Served(h.now, g.N)
	h.q.Settle(g, Runs)
}

// check compares the counts of the list with the guests.
func (h *history) check() {
	var left []*Guest
	n := map[spillway.Priority]int64{}
	flows := map[string]int{}
	for _, g := range h.waiting {
		if g.Fate == Waits && g.line != nil {
			left = append(left, g)
			n[g.Priority] += g.N
			if g.Key != "" {
				flows[fmt.Sprint(g.Key, "/", g.Priority)]++
			}
		}
	}
	h.waiting = left
	require.Equal(h.t, len(left), h.q.Len())
	require.Len(h.t, h.q.levels, len(n))
	for _, l := range h.q.levels {
		require.Equal(h.t, n[l.priority], l.n)
	}
	for _, g := range left {
		if g.Key != "" {
			require.Equal(h.t, flows[fmt.Sprint(g.Key, "/", g.Priority)], g.line.level.flows[g.place].guests)
		}
	}
}

// The order may be tuned while requests wait.
func TestTunedOrder(t *testing.T) {
	r := &rig{t: t, q: fair(100)}
	for i := range 10 {
		r.q.Order = Order(i % int(NumOrders))
		r.join("a", 0)
		r.join("b", 0)
	}
	r.q.Order = FIFO
	var last uint64
	for g := r.q.Next(r.now); g != nil; g = r.q.Next(r.now) {
		require.Greater(t, g.number, last)
		last = g.number
		r.q.Settle(g, Runs)
	}
	require.Zero(t, r.q.Len())
}
