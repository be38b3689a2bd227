package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/breaker"
)

// Promises, with room for a machine that has other work. Without the shedder, 45 % of the orders are served and the p99 is
// 980 ms, as clients leave after one second. The overload is too short to ruin the goodput, so its bound is on refusals for nothing.
const (
	leastGoodput  = 0.3 // of the capacity of the pool
	leastOrders   = 0.9 // of the orders
	mostLatency   = 900 * time.Millisecond
	mostPayments  = 60 // calls that reach the payment service while it is broken
	calmTime      = time.Second
	greedyTime    = 700 * time.Millisecond
	overloadTime  = 2 * time.Second
	outageTime    = 800 * time.Millisecond
	checkPause    = 500 * time.Millisecond
	probeInterval = 100 * time.Millisecond
	mostAttempts  = 3 // of a phase, since a machine may stand still for a moment
	mostLate      = 10 * time.Millisecond
)

// figures are the result of -check.
type figures struct {
	Limited    float64       `json:"limited"`     // share of the requests of a greedy tenant that its limit refused in a calm shop
	Load       float64       `json:"load"`        // queries that the limits let through, as a multiple of the capacity
	Goodput    float64       `json:"goodput"`     // useful answers of the overload, as a share of the capacity
	Orders     float64       `json:"orders"`      // share of the orders that were served in the overload
	P99MS      float64       `json:"p99_ms"`      // of the useful answers
	Payments   int64         `json:"payments"`    // calls that reached the broken payment service
	BreakerWas breaker.State `json:"breaker_was"` // the state of the breaker then
	Unjudged   int           `json:"unjudged"`    // phases in which the machine was too busy for this load
}

// A promise that was broken is a line of the error.
type verdict struct {
	broken []error
	late   time.Duration // how late requests were sent, at the 99th percentile
}

func (v *verdict) expect(ok bool, format string, args ...any) {
	if !ok {
		v.broken = append(v.broken, fmt.Errorf(format, args...))
	}
}

// check starts a shop, overloads it, breaks its payment service, ends it, and returns an error if it broke a promise.
func check(o settings, file string, out io.Writer) error {
	o.http, o.grpc, o.debug, o.pause = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", checkPause
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	shop, err := open(ctx, o)
	if err != nil {
		return err
	}
	c, err := newCaller(shop)
	if err != nil {
		return errors.Join(err, shop.close())
	}
	defer c.close()
	var v verdict
	var f figures
	fmt.Fprintf(out, "5 seconds with %s: calm, a greedy tenant, overload, an outage of the payment service, shutdown\n", shop.store)
	for _, phase := range []func(context.Context, *verdict, *figures){c.calm, c.greedy, c.overload, c.outage} {
		v.broken = append(v.broken, attempts(ctx, out, &f, phase)...)
	}
	c.shutdown(ctx, &v)
	fmt.Fprintf(out, "greedy tenant: its limit refused %.0f %% of its requests\n", 100*f.Limited)
	fmt.Fprintf(out, "%.1f times the capacity: goodput %.2f of the capacity, orders served %.0f %%, p99 %.0f ms\n", f.Load, f.Goodput, 100*f.Orders, f.P99MS)
	fmt.Fprintf(out, "broken payment service: %d calls reached it, then the breaker was %s\n", f.Payments, f.BreakerWas)
	if file != "" {
		text, err := json.MarshalIndent(f, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			return err
		}
	}
	if len(v.broken) == 0 && f.Unjudged == 0 {
		fmt.Fprintln(out, "all promises are kept")
	}
	return errors.Join(v.broken...)
}

// attempts plays a phase until it keeps all promises, and returns the promises that it broke in the last attempt. If even
// the clients could not keep their times then, other work had the processors, and the promises do not count.
func attempts(ctx context.Context, out io.Writer, f *figures, phase func(context.Context, *verdict, *figures)) []error {
	for n := 1; ; n++ {
		var v verdict
		phase(ctx, &v, f)
		switch {
		case len(v.broken) == 0 || ctx.Err() != nil:
			return v.broken
		case n == mostAttempts && v.late > mostLate:
			f.Unjudged++
			fmt.Fprintf(out, "not judged, since the machine was too busy to send requests in time (%v late): %v\n", v.late, errors.Join(v.broken...))
			return nil
		case n == mostAttempts:
			return v.broken
		}
		fmt.Fprintln(out, "once more:", errors.Join(v.broken...))
		time.Sleep(time.Second) // until the shop is calm
	}
}

// calm sends a third of the capacity: no request is refused. Then it sends one that is hopeless.
func (c *caller) calm(ctx context.Context, v *verdict, _ *figures) {
	items := &class{rate: 40, send: c.request("ada", http.MethodGet, "/items/7")}
	orders := &class{rate: 20, send: c.request("bob", http.MethodPost, "/orders/8")}
	calls := &class{rate: 30, send: c.call("cyd")}
	v.late = flood(ctx, calmTime, items, orders, calls)
	for _, k := range []*class{items, orders, calls} {
		v.expect(k.met.share(http.StatusOK) >= 0.9, "calm: answers were %v", k.met.byStatus)
	}
	// Less than a sixteenth of the usual time: the gate does not even use it as a probe.
	status, _, _ := c.ask(ctx, "ada", http.MethodGet, "/items/7", "Connect-Timeout-Ms", "1")
	v.expect(status == http.StatusServiceUnavailable, "a hopeless request was answered with %d", status)
	_, header, _ := c.ask(ctx, "ada", http.MethodGet, "/items/7")
	left := header.Get("Ratelimit")
	v.expect(strings.HasPrefix(left, `"tenant";r=`), "the answer says RateLimit %q", left)
}

// greedy has one tenant go far beyond its limit while there is room. Its limit refuses it, and no other tenant notices.
func (c *caller) greedy(ctx context.Context, v *verdict, f *figures) {
	greedy := &class{rate: 3 * perTenant, send: c.request("eve", http.MethodGet, "/items/7")}
	items := &class{rate: 40, send: c.request("ada", http.MethodGet, "/items/7")}
	v.late = flood(ctx, greedyTime, greedy, items)
	f.Limited = greedy.met.share(http.StatusTooManyRequests)
	v.expect(f.Limited >= 0.2, "the greedy tenant met no limit: %v", greedy.met.byStatus)
	v.expect(items.met.share(http.StatusOK) >= 0.8, "another tenant was disturbed: %v", items.met.byStatus)
}

// overload sends twice the capacity. No tenant goes beyond its limit.
func (c *caller) overload(ctx context.Context, v *verdict, f *figures) {
	orders := &class{rate: 40, send: c.request("bob", http.MethodPost, "/orders/8")}
	reports := &class{rate: 20, send: c.request("dan", http.MethodGet, "/reports")}
	work := []*class{orders, reports}
	for i := range 7 {
		tenant := strconv.Itoa(i)
		work = append(work,
			&class{rate: 40, send: c.request("http-"+tenant, http.MethodGet, "/items/7")},
			&class{rate: 40, send: c.call("grpc-" + tenant)})
	}
	alive := &class{rate: 1 / probeInterval.Seconds(), send: c.request("", http.MethodGet, "/livez")}
	ready := &class{rate: 1 / probeInterval.Seconds(), send: c.request("", http.MethodGet, "/readyz")}
	v.late = flood(ctx, overloadTime, append(work, alive, ready)...)

	const capacity = float64(poolSize) / float64(queryTime) * float64(time.Second) // queries per second
	useful, served := 0., 0
	f.Load = 0
	for _, k := range work {
		queries := 1.
		if k == reports {
			queries = 4
		}
		f.Load += queries * k.rate / capacity
		useful += queries * float64(k.met.count(http.StatusOK))
		v.expect(k.met.share(http.StatusTooManyRequests) <= 0.2, "a tenant within its limit was refused by it: %v", k.met.byStatus)
		if k.met.count(http.StatusOK) > 0 {
			served++
		}
	}
	f.Goodput = useful / (capacity * overloadTime.Seconds())
	f.Orders = orders.met.share(http.StatusOK)
	latency, _ := p99(work...)
	f.P99MS = float64(latency.Milliseconds())

	v.expect(f.Goodput >= leastGoodput, "goodput is %.2f of the capacity, want at least %.2f", f.Goodput, leastGoodput)
	v.expect(f.Orders >= leastOrders, "%.2f of the orders were served, want at least %.2f: %v", f.Orders, leastOrders, orders.met.byStatus)
	v.expect(f.P99MS <= float64(mostLatency.Milliseconds()), "the p99 is %.0f ms, want at most %v", f.P99MS, mostLatency)
	v.expect(served >= len(work)/2, "only %d of %d tenants got answers", served, len(work))
	v.expect(alive.met.share(http.StatusOK) >= 0.9, "a liveness probe would fail: %v", alive.met.byStatus)
	v.expect(ready.met.share(http.StatusOK) >= 0.9, "a readiness probe would fail: %v", ready.met.byStatus)
	c.observed(ctx, v)
}

// observed checks the metrics and the live page.
func (c *caller) observed(ctx context.Context, v *verdict) {
	for path, want := range map[string]string{
		"/metrics":         `spillway_gate_requests_total{name="shop",result="refused"}`,
		"/debug/spillway/": "<title>Shop</title>",
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.shop.debugAddr+path, http.NoBody)
		if err != nil {
			v.expect(false, "%v", err)
			continue
		}
		res, err := c.client.Do(req)
		if err != nil {
			v.expect(false, "%v", err)
			continue
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		v.expect(err == nil && strings.Contains(string(text), want), "%s lacks %s", path, want)
	}
	v.expect(c.shop.gate.Stats().Refused > 0, "the gate counts no refusal")
}

// outage breaks the payment service: its breaker soon refuses orders, and items are still served.
func (c *caller) outage(ctx context.Context, v *verdict, f *figures) {
	before := c.shop.payments.calls.Load()
	c.shop.payments.broken.Store(true)
	defer c.shop.payments.broken.Store(false)
	orders := &class{rate: 40, send: c.request("bob", http.MethodPost, "/orders/8")}
	items := &class{rate: 40, send: c.request("ada", http.MethodGet, "/items/7")}
	v.late = flood(ctx, outageTime, orders, items)
	f.Payments, f.BreakerWas = c.shop.payments.calls.Load()-before, c.shop.payments.brk.Stats().State
	v.expect(f.Payments <= mostPayments, "%d calls reached the broken payment service, want at most %d", f.Payments, mostPayments)
	v.expect(f.BreakerWas != breaker.Closed, "the breaker of the payment service is closed")
	v.expect(orders.met.count(http.StatusServiceUnavailable) > 0, "no order was refused by the breaker: %v", orders.met.byStatus)
	v.expect(items.met.share(http.StatusOK) >= 0.8, "items were disturbed by the outage: %v", items.met.byStatus)
}

// shutdown ends the shop while a request runs: it gets its answer, and the shop is unready meanwhile.
func (c *caller) shutdown(ctx context.Context, v *verdict) {
	c.client.CloseIdleConnections() // a server that ends waits five seconds for a new connection without a request
	closed := make(chan error, 1)
	go func() { closed <- c.shop.close() }() //nolint:contextcheck // the end outlives any request
	time.Sleep(checkPause / 5)               // the shop is leaving now
	ready, _, _ := c.ask(ctx, "", http.MethodGet, "/readyz")
	v.expect(ready == http.StatusServiceUnavailable, "a shop that leaves says %d when asked whether it is ready", ready)
	time.Sleep(checkPause * 3 / 5) // a report takes 100 ms and more, so it runs when the pause ends
	last, _, _ := c.ask(ctx, "ada", http.MethodGet, "/reports")
	v.expect(last == http.StatusOK, "the last request was cut off: %d", last)
	err := <-closed
	v.expect(err == nil, "the shutdown: %w", err)
}
