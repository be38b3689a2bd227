package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

var errDown = errors.New("connection refused")

// callDependency is a call that fails.
func callDependency(context.Context) error { return errDown }

// A Breaker behind a Gate: after ten failures in a row the dependency is left alone.
func Example() {
	brk, err := breaker.New(nil) // the defaults suit most dependencies
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := spillway.New(brk)
	for range 11 {
		err = spillway.Do(context.Background(), gate, spillway.Request{}, callDependency)
	}
	fmt.Println(err)
	fmt.Println(errors.Is(err, spillway.ErrRejected))
	// Output:
	// spillway: breaker refused: open
	// true
}

// A refusal says how long it makes no sense to come back.
func ExampleBreaker() {
	brk := spillway.Must(breaker.New(&breaker.Options{Consecutive: 3, Jitter: breaker.Off}))
	gate := spillway.New(brk)
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) // time is data: this runs as well with time.Now
	for range 3 {
		permit, _ := gate.Enter(context.Background(), spillway.Request{Arrived: now})
		permit.DoneAt(now.Add(20*time.Millisecond), spillway.Failure, 0)
	}
	now = now.Add(2020 * time.Millisecond)
	_, err := gate.Enter(context.Background(), spillway.Request{Arrived: now})
	if refused := spillway.RejectionOf(err); refused != nil {
		fmt.Println(refused.Reason, refused.RetryAfter)
	}
	fmt.Println(brk.StatsAt(now).State, brk.StatsAt(now.Add(3*time.Second)).State)
	// Output:
	// open 3s
	// open half-open
}

// Every change of state is an Event.
func ExampleOptions_onEvent() {
	brk := spillway.Must(breaker.New(&breaker.Options{
		Consecutive: 3,
		Jitter:      breaker.Off,
		OnEvent: func(e breaker.Event) {
			fmt.Printf("%v -> %v: %s\n", e.From, e.To, e.Reason)
		},
	}))
	ctx, now := context.Background(), time.Now()
	for range 3 {
		r := spillway.Request{Arrived: now}
		t, _ := brk.Admit(ctx, r)
		brk.Done(r, t, spillway.Result{Outcome: spillway.Failure})
	}
	now = now.Add(5 * time.Second)
	for range 3 {
		r := spillway.Request{Arrived: now}
		t, _ := brk.Admit(ctx, r)
		brk.Done(r, t, spillway.Result{Outcome: spillway.Success})
	}
	// Output:
	// closed -> open: consecutive failures
	// open -> half-open: open time over
	// half-open -> closed: probes succeeded
}

// Calls that hang open the Breaker before one of them returns.
func ExampleOptions_slowCall() {
	brk := spillway.Must(breaker.New(&breaker.Options{SlowCall: 2 * time.Second}))
	ctx, now := context.Background(), time.Now()
	for range 20 {
		_, _ = brk.Admit(ctx, spillway.Request{Arrived: now})
	}
	now = now.Add(2 * time.Second)
	_, err := brk.Admit(ctx, spillway.Request{Arrived: now})
	fmt.Println(err)
	fmt.Println(brk.StatsAt(now).Reason)
	// Output:
	// spillway: breaker refused: open
	// slow rate
}

// In mode MetricsOnly a Breaker tells what it would do.
func ExampleBreaker_SetMode() {
	brk := spillway.Must(breaker.New(&breaker.Options{OnEvent: func(e breaker.Event) {
		if e.WouldOpen {
			fmt.Println("would open:", e.Reason)
		}
	}}))
	if err := brk.SetMode(time.Now(), breaker.MetricsOnly); err != nil {
		fmt.Println(err)
	}
	gate := spillway.New(brk)
	for range 100 {
		_ = spillway.Do(context.Background(), gate, spillway.Request{}, callDependency)
	}
	fmt.Println(brk.Stats().State, brk.Stats().Failures)
	// Output:
	// would open: consecutive failures
	// closed 100
}

// An operator stops calls for as long as a database is restarted. Probes then find out whether it answers.
func ExampleBreaker_SetState() {
	brk := spillway.Must(breaker.New(&breaker.Options{Name: "checkout-db"}))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := brk.SetState(now, breaker.Open, time.Minute); err != nil {
		fmt.Println(err)
	}
	_, err := brk.Admit(context.Background(), spillway.Request{Arrived: now.Add(20 * time.Second)})
	fmt.Println(err, spillway.RejectionOf(err).RetryAfter)
	fmt.Println(brk.StatsAt(now.Add(time.Minute)).State)
	// Output:
	// spillway: checkout-db refused: open 40s
	// half-open
}

// A Throttle refuses a share of the requests, and never all.
func ExampleThrottle() {
	throttle := spillway.Must(breaker.NewThrottle(&breaker.ThrottleOptions{Seed: 1}))
	gate := spillway.New(throttle)
	for range 1000 {
		_ = spillway.Do(context.Background(), gate, spillway.Request{}, callDependency)
	}
	s := throttle.Stats()
	fmt.Println("asked", s.Requests, "odds", s.Odds)
	fmt.Println("more than nine of ten refused:", s.Refused > 900)
	// Output:
	// asked 1000 odds 0.95
	// more than nine of ten refused: true
}

// A Keyed keeps one breaker for each key, here for each host.
func ExampleKeyed() {
	perHost := spillway.Must(breaker.NewKeyed(&breaker.KeyedOptions{
		New: func(host string) (breaker.Member, error) {
			return breaker.New(&breaker.Options{Consecutive: 3})
		},
		MaxKeys: 100,
	}))
	gate := spillway.New(perHost)
	for range 3 {
		_ = spillway.Do(context.Background(), gate, spillway.Request{Key: "a.example"}, callDependency)
	}
	_, err := gate.Enter(context.Background(), spillway.Request{Key: "a.example"})
	fmt.Println("a:", err)
	permit, err := gate.Enter(context.Background(), spillway.Request{Key: "b.example"})
	fmt.Println("b:", err)
	permit.Done(spillway.Success)
	fmt.Println(perHost.Stats().Open, "of", perHost.Stats().Keys, "open")
	// Output:
	// a: spillway: breaker refused: open
	// b: <nil>
	// 1 of 2 open
}

// Coming from sony/gobreaker: ReadyToTrip, Timeout, MaxRequests, IsSuccessful and OnStateChange have their places.
func Example_gobreaker() {
	brk, err := breaker.New(&breaker.Options{
		Consecutive: 6,                // ReadyToTrip: more than 5 consecutive failures
		FailureRate: breaker.Off,      // gobreaker has no rate unless ReadyToTrip computes one
		OpenFor:     60 * time.Second, // Timeout
		Probes:      1,                // MaxRequests
		OnEvent: func(e breaker.Event) { // OnStateChange
			fmt.Println(e.From, "->", e.To)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := spillway.New(brk)
	// cb.Execute(func() (T, error) { ... })
	for range 6 {
		err = spillway.Do(context.Background(), gate, spillway.Request{}, callDependency)
	}
	fmt.Println(err)
	// errors.Is(err, gobreaker.ErrOpenState)
	_, err = gate.Enter(context.Background(), spillway.Request{})
	fmt.Println(errors.Is(err, spillway.ErrRejected))
	// Output:
	// closed -> open
	// connection refused
	// true
}

// Coming from hystrix-go: a command is a key of a Keyed, and the fallback is an if.
func Example_hystrix() {
	commands, err := breaker.NewKeyed(&breaker.KeyedOptions{
		New: func(command string) (breaker.Member, error) {
			return breaker.New(&breaker.Options{
				FailureRate: 0.5,             // ErrorPercentThreshold
				MinCalls:    20,              // RequestVolumeThreshold
				OpenFor:     5 * time.Second, // SleepWindow
				Probes:      1,
			})
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := spillway.New(commands)
	// hystrix.Do("get_user", run, fallback)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // Timeout
	defer cancel()
	err = spillway.Do(ctx, gate, spillway.Request{Key: "get_user"}, callDependency)
	if err != nil {
		fmt.Println("fallback:", err)
	}
	// Output: fallback: connection refused
}

// Coming from go-zero: NewBreaker is a Throttle, Allow is Enter, and Accept and Reject are outcomes.
func Example_gozero() {
	throttle, err := breaker.NewThrottle(&breaker.ThrottleOptions{
		K:           1.5,
		Window:      10 * time.Second,
		MinRequests: 5,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := spillway.New(throttle)
	// promise, err := brk.Allow()
	permit, err := gate.Enter(context.Background(), spillway.Request{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer permit.Done(spillway.Failure) // promise.Reject, also for a panic
	fmt.Println("working")
	permit.Done(spillway.Success) // promise.Accept
	// Output: working
}
