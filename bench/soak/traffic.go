package main

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway"
)

// traffic plans the arrivals: a Poisson process whose rate follows a daily curve, with surges.
func (w *world) traffic() {
	w.after(exp(w.rng, time.Duration(float64(time.Second)/w.rate())), func() {
		if w.now < w.end {
			w.arrive()
			w.traffic()
		}
	})
}

// The shares of the requests that go through the gates of the server and of the rates. The other requests go through
// the queues.
const (
	shareOfServer = 0.6
	shareOfRates  = 0.25
)

// rate returns the requests per second: a fifth of the server's capacity at night and nine tenths in the afternoon,
// more in a surge.
func (w *world) rate() float64 {
	day := (1 + math.Sin(2*math.Pi*w.now.Hours()/24)) / 2
	return capacity / shareOfServer * (0.2 + 0.7*day) * math.Max(w.surge, 1)
}

// arrive is one request. All its random values come from its own seed, so it does not depend on other requests.
func (w *world) arrive() {
	w.requests++
	rng := rand.New(rand.NewPCG(w.seed, uint64(w.requests)<<8))
	r := spillway.Request{Key: keyName(int(keysOfServer * rng.Float64() * rng.Float64())), Cost: 1, Arrived: w.time()}
	switch rng.IntN(5) {
	case 0:
		r.Priority = spillway.Sheddable
	case 1:
		r.Priority = spillway.Critical
	}
	if rng.IntN(20) == 0 {
		r.Cost = 2 + rng.IntN(maxCost-1)
	}
	ctx := background
	if rng.IntN(200) == 0 {
		ctx = ended
	}
	if rng.IntN(20) == 0 {
		w.asks[rng.IntN(len(w.asks))](rng)
	}
	switch x := rng.Float64(); {
	case x < shareOfServer:
		w.serve(ctx, rng, r)
	case x < shareOfServer+shareOfRates:
		if p := w.gates[gateRates].enter(ctx, r); p != nil {
			w.after(exp(rng, 200*time.Millisecond), func() { p.done(spillway.Success, rng) })
		}
	default:
		w.queues.send(r)
	}
}

// Contexts of requests whose client waits, and of requests whose client is gone.
var (
	background = context.Background()
	ended      = canceled()
)

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// The gates, in the order in which they are made.
const (
	gateServer = iota
	gateRates
	gateClient
)

// serve is a request to the server: CPU, for every other request a call of a dependency, and CPU again.
func (w *world) serve(ctx context.Context, rng *rand.Rand, r spillway.Request) {
	p := w.gates[gateServer].enter(ctx, r)
	if p == nil {
		return
	}
	began := w.now
	end := func(o spillway.Outcome) {
		if o == spillway.Success && w.now-began > patience {
			o = []spillway.Outcome{spillway.Dropped, spillway.Ignored}[rng.IntN(2)] // the deadline has passed, or the client is gone
		}
		p.done(o, rng)
	}
	w.server.run(exp(rng, cpuPerRequest/2), func() { //nolint:contextcheck // a client that is gone does not end the calls of this server
		if rng.IntN(2) == 0 {
			w.server.run(exp(rng, cpuPerRequest/2), func() { end(spillway.Success) })
			return
		}
		w.call(rng, 1, func(o spillway.Outcome) {
			w.server.run(exp(rng, cpuPerRequest/2), func() { end(o) })
		})
	})
}

// call calls a dependency through the gate of the client, and retries if the call fails and the budget allows it.
func (w *world) call(rng *rand.Rand, retries int, done func(o spillway.Outcome)) {
	host := rng.IntN(dependencies)
	p := w.gates[gateClient].enter(background, spillway.Request{Key: keyName(host), Arrived: w.time()})
	if p == nil {
		done(spillway.Ignored)
		return
	}
	w.depend.call(rng, host, func(o spillway.Outcome) {
		p.done(o, rng)
		w.budget.record(o)
		if o != spillway.Success && retries > 0 && w.budget.Allow() {
			w.call(rng, retries-1, done)
			return
		}
		done(o)
	})
}

// troubles schedules the faults and the changes of options.
func (w *world) troubles() {
	w.often(12*time.Minute, exp(w.rng, 20*time.Second), func() { w.surge = 2 + 6*w.rng.Float64() }, func() { w.surge = 0 })
	w.often(15*time.Minute, 0, func() { w.depend.slower = 5 * float64(int(1)<<w.rng.IntN(6)) }, func() { w.depend.slower = 1 })
	w.often(15*time.Minute, 0, func() { w.depend.fails = 0.3 + 0.7*w.rng.Float64() }, func() { w.depend.fails = 0 })
	w.often(20*time.Minute, 0, func() { w.depend.hung = true }, func() { w.depend.hung = false })
	w.often(20*time.Minute, 0, func() { w.server.lies = honest + 1 + lie(w.rng.IntN(int(numLies)-1)) }, func() { w.server.lies = honest })
	w.often(20*time.Minute, 0, func() { w.server.cores = 1 }, func() { w.server.cores = 2 })
	w.sometimes(10*time.Minute, func() {
		w.skew += time.Duration(w.rng.IntN(4*3600)-2*3600) * time.Second
	})
	w.sometimes(20*time.Second, func() { w.tunes[w.rng.IntN(len(w.tunes))]() })
}

// sometimes calls f at random times, once per mean on average.
func (w *world) sometimes(mean time.Duration, f func()) {
	w.after(exp(w.rng, mean), func() {
		f()
		w.sometimes(mean, f)
	})
}

// often begins something at random, on average once per given time, and ends it again.
func (w *world) often(mean, least time.Duration, begin, end func()) {
	w.sometimes(mean, func() {
		begin()
		w.after(least+exp(w.rng, time.Minute), end)
	})
}
