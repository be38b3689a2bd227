package spillway_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/shedder"
)

// A namedPolicy is a policy with the way to its name and to another one.
type namedPolicy struct {
	policy spillway.Policy
	name   string                  // in Stats
	tune   func(name string) error // nil if the policy has no Tune
}

func limited(rule func(name string) limiter.Rule) func(string) (namedPolicy, error) {
	return func(name string) (namedPolicy, error) {
		l, err := limiter.New(rule(name))
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{l, l.Stats().Name, func(name string) error { return l.Tune(rule(name)) }}, nil
	}
}

// namers make each policy of this module with a name, in a state in which it refuses the second request at the latest.
var namers = map[string]func(name string) (namedPolicy, error){
	"shedder": func(name string) (namedPolicy, error) {
		s, err := shedder.New(&shedder.Options{
			Name: name, MaxLimit: 1,
			Signals: []shedder.Signal{{Name: "test", Threshold: 1, Read: func(time.Time) (float64, error) { return 1, nil }}},
		})
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{s, s.Stats().Name, func(name string) error { return s.Tune(shedder.Options{Name: name}) }}, nil
	},
	"adaptive": func(name string) (namedPolicy, error) {
		l, err := adaptive.New(&adaptive.Options{Name: name, Max: 1})
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{l, l.Stats().Name, func(name string) error { return l.Tune(adaptive.Options{Name: name}) }}, nil
	},
	"breaker": func(name string) (namedPolicy, error) {
		b, err := breaker.New(&breaker.Options{Name: name})
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{b, b.Stats().Name, func(name string) error { return b.Tune(breaker.Options{Name: name}) }}, b.SetMode(breaker.ForcedOpen)
	},
	"throttle": func(name string) (namedPolicy, error) {
		th, err := breaker.NewThrottle(&breaker.ThrottleOptions{Name: name, MinRequests: 1, MaxRefusal: 1, K: 1, ProbeEvery: breaker.Off})
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{th, th.Stats().Name, func(name string) error { return th.Tune(breaker.ThrottleOptions{Name: name}) }}, nil
	},
	"breakers": func(name string) (namedPolicy, error) {
		r, err := breaker.NewRegistry(&breaker.RegistryOptions{Name: name})
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{r, r.Stats().Name, func(name string) error { return r.Tune(breaker.RegistryOptions{Name: name}) }},
			r.Shared().(*breaker.Breaker).SetMode(breaker.ForcedOpen)
	},
	"token bucket": limited(func(name string) limiter.Rule { return limiter.Bucket{Rate: perHour, Burst: 1, Name: name} }),
	"fixed window": limited(func(name string) limiter.Rule { return limiter.FixedWindow{Limit: 1, Period: time.Hour, Name: name} }),
	"sliding window": limited(func(name string) limiter.Rule {
		return limiter.SlidingWindow{Limit: 1, Window: time.Hour, Name: name}
	}),
	"sliding log": limited(func(name string) limiter.Rule { return limiter.SlidingLog{Limit: 1, Window: time.Hour, Name: name} }),
	"concurrency": limited(func(name string) limiter.Rule { return limiter.Concurrency{Limit: 1, Name: name} }),
	"x/time": func(name string) (namedPolicy, error) {
		x, err := limiter.NewXTime(rate.NewLimiter(rate.Every(time.Hour), 1), name)
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{x, x.Stats().Name, nil}, nil
	},
	"keyed": func(name string) (namedPolicy, error) {
		rule := limiter.Bucket{Rate: perHour, Burst: 1, Name: name}
		k, err := limiter.NewKeyed(rule, nil)
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{k, k.Stats().Name, func(name string) error {
			rule.Name = name
			return k.Tune(rule)
		}}, nil
	},
	"limits": func(name string) (namedPolicy, error) {
		r, err := limiter.NewRegistry(&limiter.RegistryOptions{Name: name, New: func(string) (limiter.Member, error) {
			return limiter.New(limiter.Queue{Limit: 1, MaxQueue: 1, MaxWait: time.Nanosecond, Name: name})
		}})
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{r, r.Stats().Name, nil}, nil
	},
}

var perHour = limiter.Per(1, time.Hour)

func TestPoliciesHaveNames(t *testing.T) {
	for kind, build := range namers {
		t.Run(kind, func(t *testing.T) {
			byDefault, err := build("")
			require.NoError(t, err)
			require.NotEmpty(t, byDefault.name)
			for _, wrong := range []string{"two\nlines", "caisse-é", strings.Repeat("x", 65)} {
				_, err := build(wrong)
				require.ErrorContains(t, err, "Name must be ")
			}
			p, err := build("checkout-db")
			require.NoError(t, err)
			require.Equal(t, "checkout-db", p.name, "Stats")
			require.Equal(t, "checkout-db", refusalOf(t, p.policy).Policy, "Rejection")
			if p.tune != nil {
				require.NoError(t, p.tune("checkout-db"))
				require.ErrorContains(t, p.tune("stock-db"), `Name `)
				require.Equal(t, "checkout-db", refusalOf(t, p.policy).Policy)
			}
		})
	}
}

// refusalOf enters requests until one is refused.
func refusalOf(t *testing.T, p spillway.Policy) *spillway.Rejection {
	t.Helper()
	gate, now := spillway.New(p), time.Now()
	for i := range 200 {
		now = now.Add(10 * time.Millisecond)
		if i > 100 { // a Throttle does not count the last second against its dependency
			now = now.Add(time.Second)
		}
		if _, err := gate.Enter(context.Background(), spillway.Request{Priority: spillway.Sheddable, Arrived: now}); err != nil {
			require.ErrorIs(t, err, spillway.ErrRejected)
			require.Equal(t, gate.Stats().ByReason[0].Policy, spillway.RejectionOf(err).Policy)
			return spillway.RejectionOf(err)
		}
	}
	t.Fatal("nothing was refused")
	return nil
}

func TestEventsHaveNames(t *testing.T) {
	var events []breaker.Event
	b := spillway.Must(breaker.New(&breaker.Options{Name: "stock-db", OnEvent: func(e breaker.Event) { events = append(events, e) }}))
	require.NoError(t, b.SetMode(breaker.ForcedOpen))
	require.Len(t, events, 1)
	require.Equal(t, "stock-db", events[0].Policy)
}
