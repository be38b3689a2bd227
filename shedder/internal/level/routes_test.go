package level

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
)

const ms = time.Millisecond

// The level is that of the max-min fair shares.
func TestFillAgainstAListOfNeeds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		f, needs, all := newRoutes(), make([]float64, 1+rng.IntN(20)), 0.0
		for i := range needs {
			needs[i] = math.Exp(4 * rng.Float64())
			all += needs[i]
		}
		f.all = f.all[:0]
		for i := range needs {
			needs[i] /= all
			f.all = append(f.all, &route{plan: routePlan{need: needs[i]}}, &route{})
		}
		pass := rng.Float64()
		require.InEpsilon(t, maxMin(needs, pass), f.fill(pass), 1e-9)
	}
	f := newRoutes()
	require.Equal(t, math.Inf(1), f.fill(1))
	require.Equal(t, math.Inf(1), f.fill(0.5), "no route needs anything")
}

// A price is a mean of successes in a calm service. A queue that comes and goes does not show in it.
func TestPriceIsThatOfTheCalmService(t *testing.T) {
	var p price
	rng := rand.New(rand.NewPCG(3, 4))
	second := func(perSecond int, wait time.Duration, calm bool) {
		for range 50 {
			for range perSecond / 50 {
				p.add(uint64(wait + time.Duration(rng.ExpFloat64()*float64(2*ms))))
			}
			p.step(0.02, calm)
		}
	}
	second(500, 0, false)
	require.Zero(t, p.ns.Load(), "a service that refuses is not calm")
	for range 60 {
		second(500, 0, true)
		if rng.IntN(2) == 0 {
			second(500, 20*ms, true) // half of the time, requests wait ten times as long as they take
		}
	}
	require.InEpsilon(t, 2*ms, p.ns.Load(), 0.3)
	before := p.ns.Load()
	for range 60 {
		second(500, 20*ms, true)
	}
	require.InEpsilon(t, float64(before)*math.Pow(1+costRise, 60), p.ns.Load(), 0.05, "it rises slowly")
	second(500, 0, false)
	require.Greater(t, p.ns.Load(), before, "an overload teaches nothing")
	p = price{}
	for range 30 {
		second(50, 1e9, true)
		second(0, 0, true)
	}
	require.InEpsilon(t, 1e9, p.ns.Load(), 0.05, "the first estimate comes at once")
}

// load is what a State is fed with for a while: requests of routes that take different times, with room for some of them.
type load struct {
	route    string
	key      string
	cost     int
	priority spillway.Priority
	rate     float64 // per second
	takes    time.Duration
}

// feed lets a State judge the loads for some seconds, in front of a service that does room seconds of work per second. The
// higher the rank of a request, the more work may wait when it is admitted. It returns the share of each load that is
// admitted.
func feed(s *State, rng *rand.Rand, now *int64, seconds float64, room float64, loads []load) []float64 {
	came, passed, waits := make([]float64, len(loads)), make([]float64, len(loads)), 0.0
	for range int(seconds * 50) {
		tick := Tick{Dt: 0.02, Limit: 40, Most: math.Inf(1), InFlight: 30, Calm: true}
		waits = max(waits-room*0.02, 0)
		var arrivals []int
		for i, l := range loads {
			for n := l.rate*0.02 + rng.Float64(); n >= 1; n-- {
				arrivals = append(arrivals, i)
			}
		}
		rng.Shuffle(len(arrivals), func(i, j int) { arrivals[i], arrivals[j] = arrivals[j], arrivals[i] })
		for _, i := range arrivals {
			l := loads[i]
			*now += rng.Int64N(int64(20*ms)) + 1
			q := &spillway.Request{Route: l.route, Key: l.key, Cost: l.cost, Priority: l.priority}
			a := s.Ask(q, *now)
			came[i]++
			if a.Dropped || waits > room*float64(a.Limit)/400 {
				s.Refuse(q, *now)
				tick.Refused++
				continue
			}
			waits += l.takes.Seconds()
			tick.Admitted++
			tick.Left++
			passed[i]++
			s.Done(q, *now, &spillway.Result{Outcome: spillway.Success, Latency: l.takes})
		}
		s.Step(&tick, 0)
	}
	for i := range passed {
		passed[i] /= came[i]
	}
	return passed
}

func shared() *State {
	s := &State{}
	s.ShareByRoute(true)
	return s
}

// A dear route that asks for more than the whole capacity gets what the cheap ones leave.
func TestCheapRoutesAreNotRefusedBecauseOfDearOnes(t *testing.T) {
	rng, now := rand.New(rand.NewPCG(5, 6)), int64(0)
	s := shared()
	loads := []load{{route: "cheap", rate: 700, takes: ms / 2}, {route: "page", rate: 200, takes: 2 * ms}, {route: "dear", rate: 100, takes: 40 * ms}}
	feed(s, rng, &now, 5, math.Inf(1), loads)
	require.Equal(t, 3, s.Routes())
	require.InEpsilon(t, 40*ms, s.Cost("dear"), 0.01)
	require.InEpsilon(t, ms/2, s.Cost("cheap"), 0.01)
	require.Equal(t, math.Inf(1), s.RouteShare())
	mix, _ := s.Mix()
	require.InDelta(t, 1, mix, 0)
	feed(s, rng, &now, 5, 2, loads)
	got := feed(s, rng, &now, 10, 2, loads) // 4.75 are asked for
	require.Greater(t, got[0], 0.97)
	require.Greater(t, got[1], 0.97)
	require.InDelta(t, (2-0.35-0.4)/4, got[2], 0.06)
	require.InDelta(t, 2-0.35-0.4, s.RouteShare(), 0.2)
	mix, refused := s.Mix()
	require.InDelta(t, 2/float64(700+200+31)/(4.75/1000), mix, 0.1)
	require.Greater(t, refused, 8.0)
}

// The cost of a request, if it is given, takes the place of what its route takes.
func TestGivenCostsCount(t *testing.T) {
	rng, now := rand.New(rand.NewPCG(7, 8)), int64(0)
	s := shared()
	loads := []load{{route: "a", cost: 1, rate: 200, takes: 5 * ms}, {route: "b", cost: 20, rate: 200, takes: 5 * ms}}
	feed(s, rng, &now, 5, math.Inf(1), loads)
	feed(s, rng, &now, 5, 1, loads)
	got := feed(s, rng, &now, 10, 1, loads)
	require.Greater(t, got[0], 0.95, "one in twenty tokens")
	require.Less(t, got[1], 0.2)
	require.Zero(t, s.Cost("a"), "its requests say themselves what they cost")
}

// Within a route, keys have their fair shares, whatever the costs of routes are.
func TestKeysShareTheirRoute(t *testing.T) {
	rng, now := rand.New(rand.NewPCG(9, 10)), int64(0)
	s := shared()
	loads := []load{{route: "cheap", key: "a", rate: 400, takes: ms / 2}, {route: "dear", key: "noisy", rate: 90, takes: 40 * ms}}
	for i := range 10 {
		loads = append(loads, load{route: "dear", key: strconv.Itoa(i), rate: 4, takes: 40 * ms})
	}
	feed(s, rng, &now, 10, math.Inf(1), loads)
	feed(s, rng, &now, 10, 3, loads)
	got := feed(s, rng, &now, 20, 3, loads) // 1.6 of the others, and 3.6 of the noisy one
	require.Greater(t, got[0], 0.97)
	require.InDelta(t, (3-0.2-1.6)/3.6, got[1], 0.12)
	for i := range 10 {
		require.Greater(t, got[2+i], 0.9, "%v", got)
	}
}

// Routes of a low priority have no share in what higher ones need.
func TestRoutesOfTwoPriorities(t *testing.T) {
	rng, now := rand.New(rand.NewPCG(11, 12)), int64(0)
	s := shared()
	loads := []load{
		{route: "first", priority: spillway.Critical, rate: 100, takes: 10 * ms}, {route: "cheap", rate: 200, takes: ms},
		{route: "dear", rate: 200, takes: 20 * ms},
	}
	feed(s, rng, &now, 5, math.Inf(1), loads)
	feed(s, rng, &now, 5, 2, loads)
	got := feed(s, rng, &now, 10, 2, loads)
	require.Greater(t, got[0], 0.98)
	require.Greater(t, got[1], 0.95)
	require.InDelta(t, 0.8/4, got[2], 0.08)
}

// After a start in the middle of an overload, nothing is known of costs, and routes are cut alike.
func TestRoutesOfUnknownCostAreCutAlike(t *testing.T) {
	rng, now := rand.New(rand.NewPCG(13, 14)), int64(0)
	s := shared()
	loads := []load{{route: "cheap", rate: 700, takes: ms / 2}, {route: "dear", rate: 100, takes: 40 * ms}}
	feed(s, rng, &now, 5, 1, loads)
	got := feed(s, rng, &now, 10, 1, loads)
	require.Equal(t, math.Inf(1), s.RouteShare())
	require.Zero(t, s.Cost("cheap"))
	require.InDelta(t, got[0], got[1], 0.1)
}

// Routes without number take a bounded memory. Those beyond the bound share what a route has.
func TestRoutesAreBounded(t *testing.T) {
	s, n := shared(), 0
	done := func(name string, o spillway.Outcome) {
		n++
		s.Done(&spillway.Request{Route: name}, int64(n), &spillway.Result{Outcome: o, Latency: ms})
	}
	for _, o := range []spillway.Outcome{spillway.Failure, spillway.Ignored, spillway.Dropped} {
		done(o.String(), o)
	}
	require.Zero(t, s.Routes(), "only successes make routes")
	done(strings.Repeat("x", longestRoute+1), spillway.Success)
	done("", spillway.Success)
	require.Zero(t, s.Routes())
	for i := range 2000 {
		done(fmt.Sprint("route", i), spillway.Success)
		s.Ask(&spillway.Request{Route: fmt.Sprint("route", i), Key: strconv.Itoa(i)}, int64(i))
	}
	require.Equal(t, mostRoutes, s.Routes())
	f := s.routes.Load()
	require.Same(t, f.rest, f.of("route1999"))
	require.Zero(t, s.Cost("route1999"))
	for range 100 {
		s.Step(&Tick{Dt: 0.02, Admitted: 50, Refused: 50, Left: 50, InFlight: 9, Limit: 9, Drop: 0.1}, 0)
	}
	require.Len(t, f.all, mostRoutes+1)
	require.Less(t, unsafe.Sizeof(route{})*mostRoutes, uintptr(1<<20), "a megabyte")
}

func TestRoutesAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	rng, now := rand.New(rand.NewPCG(15, 16)), int64(0)
	s := shared()
	loads := []load{{route: "a", key: "x", rate: 300, takes: ms}, {route: "b", key: "y", rate: 300, takes: 10 * ms}}
	feed(s, rng, &now, 3, math.Inf(1), loads)
	feed(s, rng, &now, 3, 1, loads)
	q := &spillway.Request{Route: "b", Key: "y"}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now += int64(ms)
		s.Ask(q, now)
		s.Done(q, now, &spillway.Result{Outcome: spillway.Success, Latency: ms})
		s.Step(&Tick{Dt: 0.02, Admitted: 50, Refused: 50, Left: 50, InFlight: 9, Limit: 9, Drop: 0.1}, 0)
	}))
}

// Any input makes a plan: shares are shares, and no cost is negative.
func TestRoutesOfAnyInput(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	odd := []float64{0, 1e-9, 0.5, 1, 3, 100, 1e9}
	pick := func() float64 { return odd[rng.IntN(len(odd))] }
	rounds := 30
	if race.Enabled {
		rounds = 2
	}
	for range rounds {
		s := shared()
		for i := range 200 {
			for range rng.IntN(30) {
				q := &spillway.Request{
					Key: []string{"", "a", strconv.Itoa(i)}[rng.IntN(3)], Route: []string{"", "r", strconv.Itoa(i)}[rng.IntN(3)],
					Priority: spillway.Priority(rng.IntN(60) - 30), Cost: []int{0, 1, -5, 1 << 30, math.MaxInt32}[rng.IntN(5)],
				}
				s.Ask(q, rng.Int64())
				s.Done(q, rng.Int64(), &spillway.Result{
					Outcome: spillway.Outcome(rng.IntN(5)), Latency: []time.Duration{-1, 0, 1, time.Hour, math.MaxInt64}[rng.IntN(5)],
				})
			}
			s.Step(&Tick{
				Dt: pick(), Admitted: pick(), Refused: pick(), Left: pick(), InFlight: pick(), Limit: pick(), Drop: min(pick(), 0.98), Calm: rng.IntN(2) == 0,
			}, int64(rng.IntN(3)))
			mix, refused := s.Mix()
			require.True(t, mix > 0 && mix <= 1 && refused > 0 && refused < 1000, "%v %v", mix, refused)
			require.GreaterOrEqual(t, s.RouteShare(), 0.0)
			for _, r := range s.routes.Load().all {
				for _, c := range []cut{r.plan.keys, r.plan.stays} {
					require.True(t, c.keyless >= 0 && c.keyless <= 1.000001 && c.light >= 0 && c.light <= 1.000001 && c.level >= 0, "%+v", c)
				}
			}
		}
	}
}

func TestRoutesDuringSteps(t *testing.T) {
	s := shared()
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 20_000 {
				q := &spillway.Request{Route: strconv.Itoa(i % 300), Key: strconv.Itoa(i % 50), Priority: spillway.Priority(i%9 - 4)}
				s.Ask(q, int64(i*7+g))
				s.Done(q, int64(i*7+g), &spillway.Result{Outcome: spillway.Success, Latency: ms})
			}
		})
	}
	for i := range 200 {
		s.ShareByRoute(i%50 != 49)
		s.Step(&Tick{Dt: 0.02, Admitted: 50, Refused: 50, Left: 50, InFlight: 9, Limit: 9, Drop: 0.1, Calm: true}, 0)
	}
	all.Wait()
}
