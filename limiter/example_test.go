package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// noon is where time begins in these examples. A service leaves the time to the gate, or calls the methods without one.
var noon = time.Date(2026, time.June, 1, 12, 0, 0, 0, time.UTC)

// One rule makes one limit for all, or one for each key.
func ExampleNew() {
	rule := limiter.Bucket{Rate: limiter.Per(10, time.Second), Burst: 1}
	all := spillway.Must(limiter.New(rule))
	each := spillway.Must(limiter.NewKeyed(rule, nil))
	for _, tenant := range []string{"a", "b"} {
		fmt.Println(all.AllowAt(noon, 1), each.AllowAt(noon, tenant, 1))
	}
	_, err := limiter.New(limiter.Bucket{Rate: limiter.Per(10, time.Second), Burst: -1})
	fmt.Println(err)
	// Output:
	// <nil> <nil>
	// spillway: token bucket refused: rate exceeded <nil>
	// limiter: Bucket: Burst must be at least 1, got -1
}

func ExampleBucket() {
	bucket, err := limiter.New(limiter.Bucket{Rate: limiter.Per(10, time.Second), Burst: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		fmt.Println(bucket.AllowAt(noon, 1))
	}
	fmt.Println(bucket.AllowAt(noon.Add(100*time.Millisecond), 1))
	fmt.Println(bucket.AllowAt(noon, 5))
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// spillway: token bucket refused: rate exceeded
	// <nil>
	// limiter: token bucket: cost 5 exceeds what can ever pass, 3
}

func ExampleLimiter_Wait() {
	bucket := spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(1000, time.Second), Burst: 1}))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for page := range 3 {
		if err := bucket.Wait(ctx, 1); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("page", page)
	}
	// Output:
	// page 0
	// page 1
	// page 2
}

// A rule is data: it can be read, changed and put back while requests go on.
func ExampleLimiter_Tune() {
	limit := spillway.Must(limiter.New(limiter.SlidingWindow{Limit: 100, Window: time.Minute, Name: "searches"}))
	if rule, ok := limit.Rule().(limiter.SlidingWindow); ok {
		rule.Limit = 50
		fmt.Println(limit.Tune(rule))
	}
	fmt.Printf("%+v\n", limit.Rule())
	fmt.Println(limit.Tune(limiter.SlidingWindow{Limit: 50, Window: time.Minute}))
	// Output:
	// <nil>
	// {Limit:50 Window:1m0s Buckets:60 Name:searches}
	// limiter: SlidingWindow: Tune: Name must stay "searches", got "sliding window"
}

func ExampleReservation() {
	bucket := spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(10, time.Second), Burst: 10}))
	_ = bucket.AllowAt(noon, 10)
	batch, err := bucket.ReserveAt(noon, 5, time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the batch may go in", batch.Delay())
	batch.CancelAt(noon) // nothing to send after all
	fmt.Println("the next token is there in", bucket.PeekAt(noon).NextIn)
	// Output:
	// the batch may go in 500ms
	// the next token is there in 100ms
}

func ExampleReservation_RefundAt() {
	tokens := spillway.Must(limiter.New(limiter.SlidingWindow{Limit: 10_000, Window: time.Minute}))
	r, err := tokens.ReserveAt(noon, 4000, 0) // an estimate of what a request will cost
	if err != nil {
		return
	}
	fmt.Println(tokens.PeekAt(noon).Remaining)
	r.RefundAt(noon, 2500) // it cost less
	fmt.Println(tokens.PeekAt(noon).Remaining)
	// Output:
	// 6000
	// 8500
}

func ExampleBucket_leaky() {
	uploads := spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(2, time.Second), Burst: 4, Name: "leaky bucket"}))
	level := func(now time.Time) int64 {
		s := uploads.PeekAt(now)
		return s.Limit - s.Remaining
	}
	fmt.Println(uploads.AllowAt(noon, 4), level(noon))
	fmt.Println(uploads.AllowAt(noon, 1))
	fmt.Println(uploads.AllowAt(noon.Add(time.Second), 2), level(noon.Add(time.Second)))
	// Output:
	// <nil> 4
	// spillway: leaky bucket refused: rate exceeded
	// <nil> 4
}

func ExampleShaper() {
	pace := spillway.Must(limiter.New(limiter.Shaper{
		Rate:    limiter.Per(10, time.Second),
		MaxWait: 250 * time.Millisecond,
	}))
	for range 4 {
		turn, err := pace.ReserveAt(noon, 1, time.Second)
		fmt.Println(turn.Delay(), err)
	}
	// Output:
	// 0s <nil>
	// 100ms <nil>
	// 200ms <nil>
	// 0s spillway: shaper refused: wait too long
}

func ExampleFixedWindow() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	exports := spillway.Must(limiter.New(limiter.FixedWindow{
		Limit: 3, Calendar: limiter.EveryDay, Location: berlin, Name: "daily exports",
	}))
	for range 4 {
		err = exports.AllowAt(noon, 1)
	}
	if rej := spillway.RejectionOf(err); rej != nil {
		fmt.Println(rej, "- retry after", rej.RetryAfter)
	}
	fmt.Println(exports.AllowAt(noon.Add(10*time.Hour), 1)) // midnight in Berlin
	// Output:
	// spillway: daily exports refused: quota used up - retry after 10h0m0s
	// <nil>
}

func ExampleSlidingWindow() {
	window := spillway.Must(limiter.New(limiter.SlidingWindow{Limit: 100, Window: time.Minute}))
	fmt.Println(window.AllowAt(noon.Add(59*time.Second), 100))
	fmt.Println(window.AllowAt(noon.Add(61*time.Second), 1)) // a fixed window would begin anew
	fmt.Println(window.AllowAt(noon.Add(120*time.Second), 100))
	// Output:
	// <nil>
	// spillway: sliding window refused: quota used up
	// <nil>
}

func ExampleSlidingLog() {
	log := spillway.Must(limiter.New(limiter.SlidingLog{Limit: 2, Window: time.Minute}))
	fmt.Println(log.AllowAt(noon, 1))
	fmt.Println(log.AllowAt(noon.Add(20*time.Second), 1))
	fmt.Println(log.AllowAt(noon.Add(time.Minute-1), 1))
	fmt.Println(log.AllowAt(noon.Add(time.Minute), 1))
	// Output:
	// <nil>
	// <nil>
	// spillway: sliding log refused: quota used up
	// <nil>
}

func ExampleWarmUp() {
	warm := spillway.Must(limiter.New(limiter.WarmUp{Rate: limiter.Per(2, time.Second), WarmUp: 4 * time.Second}))
	now := noon
	for range 7 {
		turn, err := warm.ReserveAt(now, 1, time.Minute)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(turn.Delay(), " ")
		now = now.Add(turn.Delay())
	}
	// Output: 0s 1.375s 1.125s 875ms 625ms 500ms 500ms
}

func ExampleConcurrency() {
	exports := spillway.Must(limiter.New(limiter.Concurrency{Limit: 1, Name: "exports"}))
	gate := spillway.New(exports)
	permit, err := gate.Enter(context.Background(), spillway.Request{})
	fmt.Println(err)
	_, err = gate.Enter(context.Background(), spillway.Request{})
	fmt.Println(err)
	permit.Done(spillway.Success)
	fmt.Println(exports.Allow())
	// Output:
	// <nil>
	// spillway: exports refused: limit reached
	// true
}

func ExampleQueue() {
	reports := spillway.Must(limiter.New(limiter.Queue{Limit: 1, MaxQueue: 10, MaxWait: 20 * time.Millisecond}))
	ctx := context.Background()
	fmt.Println(reports.Wait(ctx, 1))
	fmt.Println(reports.Wait(ctx, 1)) // waits for 20 ms
	reports.Release(1)
	fmt.Println(reports.Wait(ctx, 1))
	// Output:
	// <nil>
	// spillway: queue refused: wait too long
	// <nil>
}

// The connections to a database, shared by tenants: a tenant with many waiting requests does not delay the others.
func ExampleQueue_fair() {
	connections, err := limiter.New(limiter.Queue{Name: "db", Limit: 20, MaxQueue: 200, MaxWait: 300 * time.Millisecond, Order: limiter.Fair})
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := spillway.New(connections)
	permit, err := gate.Enter(context.Background(), spillway.Request{Key: "tenant-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer permit.Done(spillway.Failure)
	fmt.Println(connections.PeekAt(time.Now()).Remaining)
	permit.Done(spillway.Success)
	// Output: 19
}

func ExampleKeyed() {
	each := limiter.Bucket{Rate: limiter.Per(10, time.Second), Burst: 1}
	tenants := spillway.Must(limiter.NewKeyed(each, &limiter.KeyedOptions{MaxKeys: 100_000}))
	gate := spillway.New(tenants)
	for _, tenant := range []string{"flood", "flood", "quiet"} {
		_, err := gate.Enter(context.Background(), spillway.Request{Key: tenant, Arrived: noon})
		fmt.Println(tenant, err)
	}
	// Output:
	// flood <nil>
	// flood spillway: token bucket refused: rate exceeded
	// quiet <nil>
}

func ExampleRegistry() {
	perHost := spillway.Must(limiter.NewRegistry(&limiter.RegistryOptions{
		New: func(string) (limiter.Member, error) {
			return limiter.New(limiter.Queue{Limit: 4, MaxQueue: 100})
		},
	}))
	gate := spillway.New(perHost)
	permit, err := gate.Enter(context.Background(), spillway.Request{Key: "db-1.example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if host, ok := perHost.Lookup("db-1.example.com"); ok {
		queue, _ := host.(limiter.Limiter)
		fmt.Println(queue.Stats().InFlight, "of", queue.PeekAt(noon).Limit)
	}
	permit.Done(spillway.Success)
	// Output: 1 of 4
}

func ExampleXTime() {
	shared := rate.NewLimiter(rate.Every(100*time.Millisecond), 1) // other code uses it too
	gate := spillway.New(spillway.Must(limiter.New(limiter.XTime{Limiter: shared})))
	for range 2 {
		_, err := gate.Enter(context.Background(), spillway.Request{Arrived: noon})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// spillway: token bucket refused: rate exceeded
}

func ExampleCostError() {
	bucket := spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(10, time.Second)}))
	err := bucket.Wait(context.Background(), 11)
	var cost *limiter.CostError
	if errors.As(err, &cost) {
		fmt.Println("split it: at most", cost.Max, "at once")
	}
	// Output: split it: at most 10 at once
}
