package main

import (
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// A counting limit is a limit that counts tokens in its Stats.
type counting interface {
	spillway.Policy
	Stats() limiter.Stats
}

func ofStats(s limiter.Stats) numbers {
	return numbers{inFlight: -1, cost: -1, refused: s.Refused + s.Impossible, admitted: s.Admitted, returned: s.Returned}
}

// counted records a limit and its promise.
func (w *world) counted(name string, l counting, p promise) (*probe, *ledger) {
	b := w.probe(name, l)
	led := w.ledger(name, p)
	b.ledger = func(string) *ledger { return led }
	b.numbers = func() numbers { return ofStats(l.Stats()) }
	return b, led
}

func (w *world) ledger(name string, p promise) *ledger {
	l := &ledger{name: name, promise: p}
	w.ledgers = append(w.ledgers, l)
	return l
}

// byKey makes a ledger for each of the keys that are watched.
func (w *world) byKey(name string, p func() promise) (of func(key string) *ledger, all []*ledger) {
	watched := map[string]*ledger{}
	for i := range keysWatched {
		l := w.ledger(name+" "+keyName(i), p())
		watched[keyName(i)] = l
		all = append(all, l)
	}
	return func(key string) *ledger { return watched[key] }, all
}

func (w *world) bucket(name string, rate, burst int) spillway.Policy {
	l := spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(rate, time.Second), Burst: burst}))
	b, led := w.counted(name, l, &leaky{rate: float64(rate), burst: float64(burst)})
	w.tune(b.name, func() error {
		n, burst := w.intBetween(rate/4, 2*rate), w.intBetween(10, 3*burst)
		led.tune(w, float64(n), float64(burst))
		return l.TuneAt(w.time(), limiter.Bucket{Rate: limiter.Per(n, time.Second), Burst: burst})
	})
	return b
}

func (w *world) warmUp() spillway.Policy {
	rule := limiter.WarmUp{Rate: limiter.Per(2000, time.Second), WarmUp: time.Minute, MaxCost: 3}
	l := spillway.Must(limiter.New(rule))
	b, led := w.counted("warm-up", l, &leaky{rate: 2000, burst: 3})
	w.tune(b.name, func() error {
		n := w.intBetween(500, 3000)
		led.tune(w, float64(n), 3)
		rule.Rate = limiter.Per(n, time.Second)
		return l.TuneAt(w.time(), rule)
	})
	return b
}

func (w *world) xtime() spillway.Policy {
	l := spillway.Must(limiter.New(limiter.XTime{Limiter: rate.NewLimiter(40, 60)}))
	b, _ := w.counted("xtime", l, &leaky{rate: 40, burst: 60})
	return b
}

func (w *world) calendar() spillway.Policy {
	const most = 200_000
	l := spillway.Must(limiter.New(limiter.FixedWindow{Limit: most, Calendar: limiter.EveryHour}))
	b, led := w.counted("calendar", l, &calendar{limit: most, most: most})
	w.tune(b.name, func() error {
		n := w.intBetween(most/2, most)
		led.tune(w, 0, float64(n))
		return l.TuneAt(w.time(), limiter.FixedWindow{Limit: n, Calendar: limiter.EveryHour})
	})
	return b
}

func (w *world) fixedWindow() spillway.Policy {
	rule := func(n int) limiter.Rule { return limiter.FixedWindow{Limit: n, Period: 10 * time.Second} }
	return w.window("fixed window", rule, &sliding{window: 10 * time.Second, limit: 300, fixed: true})
}

func (w *world) slidingWindow() spillway.Policy {
	rule := func(n int) limiter.Rule { return limiter.SlidingWindow{Limit: n, Window: 10 * time.Second} }
	return w.window("sliding window", rule, &sliding{window: 10 * time.Second, limit: 300})
}

func (w *world) slidingLog() spillway.Policy {
	rule := func(n int) limiter.Rule { return limiter.SlidingLog{Limit: n, Window: 10 * time.Second} }
	return w.window("sliding log", rule, &sliding{window: 10 * time.Second, limit: 300})
}

func (w *world) window(name string, rule func(limit int) limiter.Rule, p promise) spillway.Policy {
	l := spillway.Must(limiter.New(rule(300)))
	b, led := w.counted(name, l, p)
	w.tune(name, func() error {
		n := w.intBetween(100, 500)
		led.tune(w, 0, float64(n))
		return l.TuneAt(w.time(), rule(n))
	})
	return b
}

func (w *world) keyedBucket() spillway.Policy {
	rule := func(n, burst int) limiter.Rule {
		return limiter.Bucket{Rate: limiter.Per(n, time.Second), Burst: burst}
	}
	l := spillway.Must(limiter.NewKeyed(rule(3, 10), &limiter.KeyedOptions{MaxKeys: keysOfServer / 2}))
	of, all := w.byKey("keyed bucket", func() promise { return &leaky{rate: 3, burst: 10} })
	return w.keyed("keyed bucket", l, of, func() error {
		n, burst := w.intBetween(1, 10), w.intBetween(5, 30)
		for _, led := range all {
			led.tune(w, float64(n), float64(burst))
		}
		return l.TuneAt(w.time(), rule(n, burst))
	})
}

func (w *world) keyedWindow() spillway.Policy {
	rule := func(n int) limiter.Rule {
		return limiter.SlidingWindow{Limit: n, Window: 10 * time.Second, Buckets: 10}
	}
	l := spillway.Must(limiter.NewKeyed(rule(20), &limiter.KeyedOptions{MaxKeys: keysOfServer / 2}))
	of, all := w.byKey("keyed window", func() promise { return &sliding{window: 10 * time.Second, limit: 20} })
	return w.keyed("keyed window", l, of, func() error {
		n := w.intBetween(5, 40)
		for _, led := range all {
			led.tune(w, 0, float64(n))
		}
		return l.TuneAt(w.time(), rule(n))
	})
}

func (w *world) keyed(name string, l *limiter.Keyed, of func(key string) *ledger, tune func() error) spillway.Policy {
	b := w.probe(name, l)
	b.ledger = of
	b.numbers = func() numbers {
		s := l.Stats()
		w.within(name, "Keys", float64(s.Keys), 0, float64(s.MaxKeys))
		return ofStats(s.Stats)
	}
	w.tune(name, tune)
	return b
}

func (w *world) concurrency() spillway.Policy {
	limit := 100
	l := spillway.Must(limiter.New(limiter.Concurrency{Limit: limit}))
	b := w.probe("concurrency", l)
	b.numbers = func() numbers {
		s := l.Stats()
		return numbers{inFlight: -1, cost: s.InFlight, refused: s.Refused, admitted: -1, returned: -1}
	}
	b.admits = func(spillway.Request) {
		if b.cost > int64(limit) {
			w.violate(b.name, "at most %d places expected, %d were given", limit, b.cost)
		}
	}
	w.tune(b.name, func() error {
		limit = w.intBetween(10, 150)
		return l.TuneAt(w.time(), limiter.Concurrency{Limit: limit})
	})
	return b
}

// perKey keeps a Concurrency per key, for fewer keys than exist.
func (w *world) perKey() spillway.Policy {
	const limit, most = maxCost, keysOfServer / 4
	l := spillway.Must(limiter.NewRegistry(&limiter.RegistryOptions{MaxKeys: most, New: func(string) (limiter.Member, error) {
		return limiter.New(limiter.Concurrency{Limit: limit})
	}}))
	b := w.probe("registry", l)
	b.numbers = func() numbers {
		s := l.Stats()
		w.within(b.name, "Keys", float64(s.Keys), 0, most)
		w.within(b.name, "Failed", float64(s.Failed), 0, 0)
		return numbers{-1, -1, -1, -1, -1}
	}
	b.admits = func(r spillway.Request) {
		if n := b.keys[r.Key]; n > limit {
			w.violate(b.name, "at most %d places expected for %s, %d were given", limit, r.Key, n)
		}
	}
	return b
}

// direct limits are asked without a gate: tokens are reserved, and given back in whole or in part before they are used.
func (w *world) direct() {
	type reserver interface {
		ReserveAt(now time.Time, n int, maxWait time.Duration) (limiter.Reservation, error)
	}
	const wait = 3 * time.Second
	for _, d := range []struct {
		name string
		l    reserver
		p    promise
	}{
		{
			"direct bucket",
			spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(2, time.Second), Burst: 8})), &leaky{rate: 2, burst: 8},
		},
		{
			"direct window",
			spillway.Must(limiter.New(limiter.SlidingWindow{Limit: 20, Window: 10 * time.Second})),
			&sliding{window: 10 * time.Second, limit: 20},
		},
		{
			"direct log",
			spillway.Must(limiter.New(limiter.SlidingLog{Limit: 20, Window: 10 * time.Second})),
			&sliding{window: 10 * time.Second, limit: 20},
		},
		{
			"direct shaper",
			spillway.Must(limiter.New(limiter.Shaper{Rate: limiter.Per(2, time.Second), MaxCost: 4})), &leaky{rate: 2, burst: 4},
		},
	} {
		led := w.ledger(d.name, d.p)
		led.hold = 3 * wait
		w.asks = append(w.asks, func(rng *rand.Rand) {
			n := 1 + rng.IntN(4)
			r, err := d.l.ReserveAt(w.time(), n, time.Duration(rng.Float64()*float64(wait)))
			if err != nil {
				return
			}
			e := led.take(w, w.time().Add(r.Delay()), int64(n))
			switch x := rng.Float64(); {
			case x < 0.2:
				w.after(time.Duration(rng.Float64()*float64(r.Delay())), func() {
					r.CancelAt(w.time())
					e.n = 0
				})
			case x < 0.4:
				w.after(r.Delay()+exp(rng, time.Second/2), func() {
					back := 1 + rng.IntN(n)
					if w.now < e.at+led.hold-time.Second {
						r.RefundAt(w.time(), back)
						e.n -= int64(back)
					}
				})
			}
		})
	}
}
