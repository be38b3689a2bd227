package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

const (
	classes  = 3
	fleet    = 4                      // clients, each with what it has heard from the server
	patience = time.Second            // then a client gives up
	useful   = 500 * time.Millisecond // an answer after it is worth nothing
	warmUp   = 0.5                    // load before the overload, of the capacity
	ahead    = 2 * time.Second        // of each load before the measurement, at most
)

var priorities = [classes]spillway.Priority{spillway.Critical, spillway.Normal, spillway.Sheddable}

// A result counts requests and their answers.
type result struct {
	mu        sync.Mutex
	took      time.Duration
	offered   [classes]int
	latencies [classes][]time.Duration // of the useful answers
	reached   atomic.Int64             // requests that were sent
}

// note records an answer.
func (r *result) note(class int, latency time.Duration, good bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.offered[class]++
	if good {
		r.latencies[class] = append(r.latencies[class], latency)
	}
}

// good returns the useful answers per second.
func (r *result) good() float64 {
	n := 0
	for _, l := range r.latencies {
		n += len(l)
	}
	return float64(n) / r.took.Seconds()
}

func (r *result) reachedRPS() float64 { return float64(r.reached.Load()) / r.took.Seconds() }

// p99 returns the latency of all useful answers in ms.
func (r *result) p99() float64 { return p99(slices.Concat(r.latencies[:]...)) }

func p99(latencies []time.Duration) float64 {
	if len(latencies) == 0 {
		return 0
	}
	slices.Sort(latencies)
	return round(latencies[(len(latencies)*99-1)/100].Seconds()*1000, 1)
}

func (r *result) classes() []classFigures {
	var out []classFigures
	for i, p := range priorities {
		out = append(out, classFigures{
			Priority: p.String(), OfferedRPS: round(float64(r.offered[i])/r.took.Seconds(), 1),
			Served: round(float64(len(r.latencies[i]))/float64(max(r.offered[i], 1)), 5), P99MS: p99(r.latencies[i]),
		})
	}
	return out
}

// A sender is a client.
type sender struct {
	url  string
	http http.RoundTripper
	base *http.Transport
	sent *atomic.Pointer[result] // where the requests that are sent count; nil before the measurement
}

// RoundTrip sends a request and counts it.
func (s *sender) RoundTrip(r *http.Request) (*http.Response, error) {
	if count := s.sent.Load(); count != nil {
		count.reached.Add(1)
	}
	return s.base.RoundTrip(r)
}

// newSender returns a client of the server at addr, which listens to it or not.
func newSender(addr string, listen bool, sent *atomic.Pointer[result]) (*sender, error) {
	s := &sender{url: "http://" + addr + "/", sent: sent, base: &http.Transport{MaxIdleConnsPerHost: 256}}
	s.http = s
	if !listen {
		return s, nil
	}
	t, err := httpgate.NewTransport(spillway.New(), s, &httpgate.TransportOptions{
		ListenTo: []string{addr},
		Request: func(r *http.Request) (req spillway.Request) {
			_ = req.Priority.UnmarshalText([]byte(r.Header.Get("Spillway-Priority")))
			return req
		},
	})
	s.http = t
	return s, err
}

// ask sends a request of a priority, and reports whether it was answered with 200.
func (s *sender) ask(p spillway.Priority) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, http.NoBody)
	if err != nil {
		return false
	}
	r.Header.Set("Spillway-Priority", p.String())
	res, err := s.http.RoundTrip(r)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err == nil && res.StatusCode == http.StatusOK
}

// measure plays a light load and then the given rates by class, and returns what became of the latter.
func (s settings) measure(rates [classes]float64, priorities, listen bool) (*result, error) {
	server, err := start(way{Priorities: priorities, Tell: listen})
	if err != nil {
		return nil, err
	}
	defer server.stop()
	var sent atomic.Pointer[result]
	senders := make([]*sender, fleet)
	for i := range senders {
		if senders[i], err = newSender(server.addr, listen, &sent); err != nil {
			return nil, err
		}
		defer senders[i].base.CloseIdleConnections()
	}
	light := rates
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
	for i := range light {
		light[i] *= warmUp * rates[1] / sum // the rate of normal requests is the capacity
	}
	before := min(ahead, time.Duration(s.seconds*float64(time.Second)))
	play(senders, light, before, nil)
	play(senders, rates, before, nil)
	met := &result{}
	sent.Store(met)
	began := time.Now()
	wait := play(senders, rates, time.Duration(s.seconds*float64(time.Second)), met)
	met.took = time.Since(began)
	sent.Store(nil)
	wait()
	return met, nil
}

// play sends requests at random times for the given time. The requests are answered when the returned function
// returns.
func play(senders []*sender, rates [classes]float64, length time.Duration, into *result) (wait func()) {
	var pending sync.WaitGroup
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
	began := time.Now()
	for at := time.Duration(0); at < length; at += time.Duration(rand.ExpFloat64() / sum * 1e9) {
		time.Sleep(at - time.Since(began)) // not at all if it is late
		intended := began.Add(at)
		class, x := 0, rand.Float64()*sum
		for class < classes-1 && x >= rates[class] {
			x -= rates[class]
			class++
		}
		from := senders[rand.IntN(len(senders))]
		pending.Go(func() {
			ok := from.ask(priorities[class])
			if latency := time.Since(intended); into != nil {
				into.note(class, latency, ok && latency <= useful)
			}
		})
	}
	if into == nil {
		return nil
	}
	return pending.Wait
}

// measureCapacity returns how many requests per second the bare server answers.
func measureCapacity(length time.Duration) (float64, error) {
	server, err := start(way{Bare: true})
	if err != nil {
		return 0, err
	}
	defer server.stop()
	var none atomic.Pointer[result]
	client, err := newSender(server.addr, false, &none)
	if err != nil {
		return 0, err
	}
	defer client.base.CloseIdleConnections()
	var answers atomic.Int64
	var done atomic.Bool
	var all sync.WaitGroup
	for range 8 * pool {
		all.Go(func() {
			for !done.Load() {
				if client.ask(spillway.Normal) {
					answers.Add(1)
				}
			}
		})
	}
	time.Sleep(length / 4)
	before, began := answers.Load(), time.Now()
	time.Sleep(length)
	capacity := float64(answers.Load()-before) / time.Since(began).Seconds()
	done.Store(true)
	all.Wait()
	return capacity, nil
}
