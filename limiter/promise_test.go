package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// Whatever is taken, cancelled, refunded in parts or refused by a later policy, and in whatever order: what was really used stays
// within what the limit promises. A use counts when its holder was told to go.
//
// Each seed plays so many steps, a share of them with each limit. The long form is
//
//	SPILLWAY_PROMISE_STEPS=1000000 SPILLWAY_PROMISE_SEEDS=100 go test -run TestPromisesHold -timeout 2h ./limiter
func TestPromisesHold(t *testing.T) {
	steps, n := fromEnv("SPILLWAY_PROMISE_STEPS", 30_000)/len(promisers()), fromEnv("SPILLWAY_PROMISE_SEEDS", 8)
	for name, build := range promisers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range n {
				rng := rand.New(rand.NewPCG(uint64(seed), 14))
				p := &player{rng: rng}
				build(t, p)
				p.play(t, fmt.Sprint("seed ", seed), steps)
			}
		})
	}
}

func fromEnv(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// A keyedDirect is what the players ask: a limit, or one of each key.
type keyedDirect interface {
	ReserveAt(now time.Time, key string, n int, maxWait time.Duration) (Reservation, error)
	Admit(now time.Time, key string, n int) (refuse func(), err error)
}

type single struct{ direct }

func (s single) ReserveAt(now time.Time, _ string, n int, maxWait time.Duration) (Reservation, error) {
	return s.direct.ReserveAt(now, n, maxWait)
}

func (s single) Admit(now time.Time, _ string, n int) (func(), error) {
	return admit(s.direct, now, "", n)
}

type many struct{ *Keyed }

func (m many) Admit(now time.Time, key string, n int) (func(), error) {
	return admit(m.Keyed, now, key, n)
}

func admit(p spillway.Policy, now time.Time, key string, n int) (refuse func(), err error) {
	r := spillway.Request{Arrived: now, Cost: n, Key: key}
	t, err := p.Admit(nil, r) //nolint:staticcheck // they do not look at it
	return func() { p.Done(r, t, spillway.Result{Outcome: spillway.Refused}) }, err
}

// A use is what was taken at once and not given back.
type use struct {
	at, n int64
	open  bool // it may still be given back
}

// A promise checks one more use against all others, which are sorted by at.
type promise interface {
	check(uses []*use, i int) string
	// settled takes a use that will not change any more and is older than all others out of the account.
	settled(u *use)
	memory() int64 // ns after which a use may be settled
}

// held is what a player may give back.
type held struct {
	u      *use
	key    string
	res    Reservation
	refuse func()
	until  int64 // the end of its delay
}

type player struct {
	rng     *rand.Rand
	limit   keyedDirect
	keys    int
	maxCost int
	maxWait time.Duration
	step    int64 // ns between two steps at most
	promise func() promise

	now      int64
	accounts map[string]*account
	held     []held
	back     int
}

type account struct {
	promise
	uses []*use
}

func (p *player) play(t *testing.T, name string, steps int) {
	t.Helper()
	p.accounts = map[string]*account{}
	taken := 0
	for step := range steps {
		switch p.rng.IntN(40) {
		case 0:
			p.now += p.rng.Int64N(p.step * 200)
		case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15:
			p.now += p.rng.Int64N(p.step)
		}
		if len(p.held) > 0 && p.rng.IntN(2) == 0 || len(p.held) > 40 {
			p.giveBack(p.rng.IntN(len(p.held)))
			continue
		}
		why, ok := p.take()
		if ok {
			taken++
		}
		if why != "" {
			t.Fatalf("%s, step %d at %d: %s", name, step, p.now, why)
		}
	}
	require.Greater(t, taken, steps/100, name)
	require.Greater(t, p.back, steps/100, name)
}

func (p *player) take() (why string, ok bool) {
	key := strconv.Itoa(p.rng.IntN(max(p.keys, 1)))
	n := 1 + p.rng.IntN(p.maxCost)
	h := held{key: key, until: p.now}
	var err error
	if p.rng.IntN(3) == 0 {
		h.refuse, err = p.limit.Admit(after(time.Duration(p.now)), key, n)
	} else {
		wait := time.Duration(0)
		if p.maxWait > 0 && p.rng.IntN(3) == 0 {
			wait = time.Duration(p.rng.Int64N(int64(p.maxWait)))
		}
		h.res, err = p.limit.ReserveAt(after(time.Duration(p.now)), key, n, wait)
		h.until += int64(h.res.Delay())
	}
	if err != nil {
		return "", false
	}
	a := p.accounts[key]
	if a == nil {
		a = &account{promise: p.promise()}
		p.accounts[key] = a
	}
	h.u = &use{at: h.until, n: int64(n), open: true}
	a.add(h.u)
	if p.rng.IntN(4) > 0 {
		p.held = append(p.held, h)
	} else {
		h.u.open = false
	}
	a.settle(p.now)
	i := slices.Index(a.uses, h.u)
	if i < 0 {
		return "", true
	}
	return a.check(a.uses, i), true
}

func (a *account) add(u *use) {
	i := len(a.uses)
	for i > 0 && a.uses[i-1].at > u.at {
		i--
	}
	a.uses = slices.Insert(a.uses, i, u)
}

func (a *account) settle(now int64) {
	n := 0
	for n < len(a.uses) && !a.uses[n].open && now-a.uses[n].at > a.memory() {
		a.settled(a.uses[n])
		n++
	}
	a.uses = a.uses[n:]
}

func (p *player) giveBack(i int) {
	h := &p.held[i]
	at := after(time.Duration(p.now))
	gone := true
	switch k := p.rng.IntN(10); {
	case k == 0: // keeps it
	case h.refuse != nil:
		h.refuse()
		h.u.n = 0
	case k < 4 && h.u.n > 1:
		n := 1 + p.rng.Int64N(h.u.n-1)
		h.res.RefundAt(at, int(n))
		h.u.n -= n
		gone = false
	case k < 7:
		h.res.CancelAt(at)
		if p.now <= h.until {
			h.u.n = 0
		}
	default:
		h.res.RefundAt(at, int(h.u.n))
		h.u.n = 0
	}
	p.back++
	if gone {
		h.u.open = false
		p.held = slices.Delete(p.held, i, i+1)
	}
}

// A leak promises that what is poured in at a use never stands above full, in ticks of which each ns takes rate away.
type leak struct {
	rate, per, full int64
	before          bool  // only earlier entries may not exceed full
	slack           int64 // tolerated excess
	level, at       int64 // after the settled entries
}

func (l *leak) pour(level, at, now, n int64) (before, later int64) {
	before = max(level-(now-at)*l.rate, 0)
	return before, before + n*l.per
}

func (l *leak) check(uses []*use, i int) string {
	level, at := l.level, l.at
	for j, u := range uses {
		if u.n == 0 {
			continue
		}
		before, later := l.pour(level, at, u.at, u.n)
		level, at = later, u.at
		stands := later
		if l.before {
			stands = before
		}
		if j >= i && stands > l.full+l.slack {
			return fmt.Sprintf("%d ticks above %d at %d", stands-l.full, l.full, u.at)
		}
	}
	return ""
}

func (l *leak) settled(u *use) {
	if u.n > 0 {
		_, l.level = l.pour(l.level, l.at, u.at, u.n)
		l.at = u.at
	}
}

func (l *leak) memory() int64 { return 0 }

// A sliding window promises that no window has more than limit.
type slidingPromise struct{ limit, window int64 }

func (s *slidingPromise) check(uses []*use, i int) string {
	first, sum := 0, int64(0)
	for j, u := range uses {
		if u.at >= uses[i].at+s.window {
			break
		}
		sum += u.n
		for u.at-uses[first].at >= s.window {
			sum -= uses[first].n
			first++
		}
		if j >= i && sum > s.limit {
			return fmt.Sprintf("%d of %d in the window that ends at %d", sum, s.limit, u.at)
		}
	}
	return ""
}

func (s *slidingPromise) settled(*use)  {}
func (s *slidingPromise) memory() int64 { return s.window }

// A fixed window promises the same of the windows one after the other.
type fixedPromise struct {
	limit int64
	index func(at int64) int64
}

func (f *fixedPromise) check(uses []*use, i int) string {
	sum := int64(0)
	for _, u := range uses {
		if f.index(u.at) == f.index(uses[i].at) {
			sum += u.n
		}
	}
	if sum > f.limit {
		return fmt.Sprintf("%d of %d in the window around %d", sum, f.limit, uses[i].at)
	}
	return ""
}

func (f *fixedPromise) settled(*use)  {}
func (f *fixedPromise) memory() int64 { return int64(2 * time.Hour) }

// promisers set players up for each kind of limit.
func promisers() map[string]func(t *testing.T, p *player) {
	const s = time.Second
	bucket := func(p *player) (Rate, int) {
		r := Per(1+p.rng.IntN(20), s)
		burst := 1 + p.rng.IntN(30)
		p.maxCost, p.step, p.maxWait = burst, int64(s)/20, s*time.Duration(p.rng.IntN(6))
		return r, burst
	}
	leaky := func(r Rate, burst int) func() promise {
		return func() promise {
			a, b := r.fraction()
			return &leak{rate: a, per: b, full: int64(burst) * b, slack: a} // a delay is rounded up to a ns
		}
	}
	sliding := func(p *player) (int, time.Duration) {
		limit, window := 1+p.rng.IntN(30), s*time.Duration(1+p.rng.IntN(10))
		p.maxCost, p.step, p.maxWait = limit, int64(window)/20, window*time.Duration(p.rng.IntN(3))
		p.promise = func() promise { return &slidingPromise{int64(limit), int64(window)} }
		return limit, window
	}
	warm := func(t *testing.T, p *player) *limit[warmState] {
		o := WarmUp{Rate: Per(1+p.rng.IntN(20), s), WarmUp: s * time.Duration(p.rng.IntN(10)), MaxCost: 1 + p.rng.IntN(10)}
		p.maxCost, p.step, p.maxWait = o.MaxCost, int64(s)/5, s*time.Duration(p.rng.IntN(6))
		p.promise = func() promise {
			a, b := o.Rate.fraction()
			return &leak{rate: a, per: b, before: true, slack: 1000 * a}
		}
		return newWarmUp(t, o)
	}
	keyed := func(t *testing.T, p *player, like Limiter) {
		p.keys = 6
		p.limit = many{newKeyed(t, like, 1+p.rng.IntN(6))}
	}
	return map[string]func(t *testing.T, p *player){
		"Bucket": func(t *testing.T, p *player) {
			r, burst := bucket(p)
			p.limit, p.promise = single{newBucket(t, r, burst)}, leaky(r, burst)
		},
		"Keyed Bucket": func(t *testing.T, p *player) {
			r, burst := bucket(p)
			keyed(t, p, newBucket(t, r, burst))
			p.promise = leaky(r, burst)
		},
		"SlidingLog": func(t *testing.T, p *player) {
			limit, window := sliding(p)
			p.limit = single{newLog(t, limit, window)}
		},
		"SlidingWindow": func(t *testing.T, p *player) {
			limit, window := sliding(p)
			p.limit = single{newSliding(t, limit, window, 1+p.rng.IntN(20))}
		},
		"Keyed SlidingLog": func(t *testing.T, p *player) {
			limit, window := sliding(p)
			keyed(t, p, newLog(t, limit, window))
		},
		"FixedWindow": func(t *testing.T, p *player) {
			limit := 1 + p.rng.IntN(40)
			p.maxCost, p.step, p.maxWait = limit, int64(time.Minute)/20, time.Minute*time.Duration(p.rng.IntN(3))
			p.limit = single{newWindow(t, FixedWindow{Limit: limit, Calendar: EveryMinute})}
			p.promise = func() promise {
				return &fixedPromise{int64(limit), func(at int64) int64 { return at / int64(time.Minute) }}
			}
		},
		"FixedWindow from the first on": func(t *testing.T, p *player) { // an interval of a period has parts of two windows
			limit, period := 1+p.rng.IntN(40), s*time.Duration(1+p.rng.IntN(10))
			p.maxCost, p.step, p.maxWait = limit, int64(period)/20, period*time.Duration(p.rng.IntN(3))
			p.limit = single{newWindow(t, FixedWindow{Limit: limit, Period: period})}
			p.promise = func() promise { return &slidingPromise{2 * int64(limit), int64(period)} }
		},
		"Keyed FixedWindow": func(t *testing.T, p *player) {
			limit := 1 + p.rng.IntN(40)
			p.maxCost, p.step = limit, int64(time.Minute)/20
			keyed(t, p, newWindow(t, FixedWindow{Limit: limit, Calendar: EveryMinute}))
			p.promise = func() promise {
				return &fixedPromise{int64(limit), func(at int64) int64 { return at / int64(time.Minute) }}
			}
		},
		"WarmUp":       func(t *testing.T, p *player) { p.limit = single{warm(t, p)} },
		"Keyed WarmUp": func(t *testing.T, p *player) { keyed(t, p, warm(t, p)) },
		"Shaper": func(t *testing.T, p *player) {
			r, slack := Per(1+p.rng.IntN(20), s), p.rng.IntN(3)
			p.maxCost, p.step, p.maxWait = 1+p.rng.IntN(10), int64(s)/5, s*time.Duration(p.rng.IntN(6))
			p.limit = single{shaperDirect{newShaper(t, Shaper{Rate: r, Slack: slack, MaxCost: p.maxCost, MaxWait: time.Minute})}}
			p.promise = func() promise {
				a, b := r.fraction()
				return &leak{rate: a, per: b, full: int64(slack) * b, before: true, slack: a}
			}
		},
	}
}

// A shaperDirect is a Shaper whose Admit does not block.
type shaperDirect struct{ *shaper }

func (s shaperDirect) Stats() Stats { return s.shaper.Stats() }

func (s shaperDirect) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	if s.PeekAt(r.Arrived).Remaining == 0 {
		return 0, spillway.ErrRejected
	}
	return s.shaper.Admit(context.Background(), r)
}
