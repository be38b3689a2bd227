package spillway_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/deadline"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/shedder"
)

// A namedPolicy is a policy with the way to its name and to another one.
type namedPolicy struct {
	policy spillway.Policy
	stats  func() any
	tune   func(name string) error // nil if the policy has no Tune
}

// A past sends requests to a policy whose time has passed.
type past struct{ spillway.Policy }

func (p past) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	r.Timeout = -1
	return p.Policy.Admit(ctx, r)
}

func limited(rule func(name string) limiter.Rule) func(string) (namedPolicy, error) {
	return func(name string) (namedPolicy, error) {
		l, err := limiter.New(rule(name))
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{l, func() any { return l.Stats() }, func(name string) error { return l.Tune(rule(name)) }}, nil
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
		return namedPolicy{s, func() any { return s.Stats() }, func(name string) error {
			o := s.Options()
			o.Name = name
			return s.Tune(o)
		}}, nil
	},
	"adaptive": func(name string) (namedPolicy, error) {
		l, err := adaptive.New(&adaptive.Options{Name: name, Max: 1})
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{l, func() any { return l.Stats() }, func(name string) error {
			o := l.Options()
			o.Name = name
			return l.Tune(o)
		}}, nil
	},
	"deadline": func(name string) (namedPolicy, error) {
		p, err := deadline.New(&deadline.Options{Name: name})
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{past{p}, func() any { return p.Stats() }, nil}, nil
	},
	"breaker": func(name string) (namedPolicy, error) {
		b, err := breaker.New(&breaker.Options{Name: name})
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{b, func() any { return b.Stats() }, func(name string) error {
			o := b.Options()
			o.Name = name
			return b.Tune(o)
		}}, b.SetMode(time.Now(), breaker.ForcedOpen)
	},
	"throttle": func(name string) (namedPolicy, error) {
		th, err := breaker.NewThrottle(&breaker.ThrottleOptions{Name: name, MinRequests: 1, MaxRefusal: 1, K: 1, ProbeEvery: breaker.Off})
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{th, func() any { return th.Stats() }, func(name string) error {
			o := th.Options()
			o.Name = name
			return th.Tune(o)
		}}, nil
	},
	"breakers": func(name string) (namedPolicy, error) {
		r, err := breaker.NewKeyed(&breaker.KeyedOptions{Name: name})
		if err != nil {
			return namedPolicy{}, err
		}
		shared, _ := r.Lookup("")
		return namedPolicy{r, func() any { return r.Stats() }, func(name string) error {
				o := r.Options()
				o.Name = name
				return r.Tune(o)
			}},
			shared.(*breaker.Breaker).SetMode(time.Now(), breaker.ForcedOpen)
	},
	"token bucket": limited(func(name string) limiter.Rule { return limiter.Bucket{Rate: perHour, Burst: 1, Name: name} }),
	"fixed window": limited(func(name string) limiter.Rule { return limiter.FixedWindow{Limit: 1, Period: time.Hour, Name: name} }),
	"sliding window": limited(func(name string) limiter.Rule {
		return limiter.SlidingWindow{Limit: 1, Window: time.Hour, Name: name}
	}),
	"sliding log": limited(func(name string) limiter.Rule { return limiter.SlidingLog{Limit: 1, Window: time.Hour, Name: name} }),
	"concurrency": limited(func(name string) limiter.Rule { return limiter.Concurrency{Limit: 1, Name: name} }),
	"x/time": func(name string) (namedPolicy, error) {
		x, err := limiter.New(limiter.XTime{Limiter: rate.NewLimiter(rate.Every(time.Hour), 1), Name: name})
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{x, func() any { return x.Stats() }, nil}, nil
	},
	"keyed": func(name string) (namedPolicy, error) {
		rule := limiter.Bucket{Rate: perHour, Burst: 1, Name: name}
		k, err := limiter.NewKeyed(rule, nil)
		if err != nil {
			return namedPolicy{}, err
		}
		return namedPolicy{k, func() any { return k.Stats() }, func(name string) error {
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
		return namedPolicy{r, func() any { return r.Stats() }, nil}, nil
	},
}

var perHour = limiter.Per(1, time.Hour)

func TestPoliciesHaveNames(t *testing.T) {
	for kind, build := range namers {
		t.Run(kind, func(t *testing.T) {
			byDefault, err := build("")
			require.NoError(t, err)
			require.NotEmpty(t, nameOf(byDefault))
			for _, wrong := range []string{"two\nlines", "caisse-é", strings.Repeat("x", 65)} {
				_, err := build(wrong)
				require.ErrorContains(t, err, "Name must be ")
			}
			p, err := build("checkout-db")
			require.NoError(t, err)
			require.Equal(t, "checkout-db", nameOf(p), "Stats")
			require.Equal(t, "checkout-db", refusalOf(t, p.policy).Policy, "Rejection")
			if p.tune != nil {
				require.NoError(t, p.tune("checkout-db"))
				require.ErrorContains(t, p.tune("stock-db"), `Name `)
				require.Equal(t, "checkout-db", refusalOf(t, p.policy).Policy)
			}
		})
	}
}

// nameOf returns the name in the Stats of a policy, which is their first field.
func nameOf(p namedPolicy) string {
	s := reflect.ValueOf(p.stats())
	for s.Type().Field(0).Anonymous {
		s = s.Field(0)
	}
	return s.FieldByIndex([]int{0}).String()
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

// Stats of one shape can be read by one program.
func TestStatsHaveOneShape(t *testing.T) {
	uncounted := map[string]string{ // fields that a type lacks, and why
		"breaker.Stats":         "Admitted", // it would cost each call
		"breaker.ThrottleStats": "Admitted", // the same
		"deadline.Stats":        "Admitted", // the same
	}
	refusals := reflect.TypeFor[[]spillway.Refusal]()
	for name, s := range snapshots(t) {
		of := reflect.TypeOf(s)
		if _, refuses := of.FieldByName("Refused"); !refuses {
			continue
		}
		for _, field := range []string{"Admitted", "Refused", "ByReason"} {
			f, ok := of.FieldByName(field)
			if field == uncounted[name] {
				require.False(t, ok, "%s has %s now: strike it from the list", name, field)
				continue
			}
			require.True(t, ok, "%s has no %s", name, field)
			if field == "ByReason" {
				require.Equal(t, refusals, f.Type, name)
			} else {
				require.Equal(t, reflect.Int64, f.Type.Kind(), "%s.%s", name, field)
			}
		}
	}
	for kind, build := range namers {
		p, err := build("checkout-db")
		require.NoError(t, err)
		rej := refusalOf(t, p.policy)
		s := reflect.ValueOf(p.stats())
		if !s.FieldByName("ByReason").IsValid() {
			continue
		}
		require.Equal(t, []spillway.Refusal{{Policy: "checkout-db", Reason: rej.Reason, Count: 1}}, s.FieldByName("ByReason").Interface(), kind)
		require.EqualValues(t, 1, s.FieldByName("Refused").Int(), kind)
		// A Concurrency does not count what it admits: it would double the price.
		if admitted := s.FieldByName("Admitted"); admitted.IsValid() && kind != "concurrency" {
			require.Positive(t, admitted.Int(), kind)
		}
	}
}

func TestEventsHaveNames(t *testing.T) {
	var events []breaker.Event
	b := spillway.Must(breaker.New(&breaker.Options{Name: "stock-db", OnEvent: func(e breaker.Event) { events = append(events, e) }}))
	require.NoError(t, b.SetMode(time.Now(), breaker.ForcedOpen))
	require.Len(t, events, 1)
	require.Equal(t, "stock-db", events[0].Policy)
}
