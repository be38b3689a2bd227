package level

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A loop is a service of a capacity whose clients follow the advice a little later.
type loop struct {
	adviser adviser
	rng     *rand.Rand
	late    []Advice // what clients will have heard
}

const (
	loopTick = 0.02 // seconds
	loopLate = 8    // ticks until clients follow
)

func newLoop() *loop { return &loop{rng: rand.New(rand.NewPCG(1, 2)), late: make([]Advice, loopLate)} }

// run lets requests of the given rates by class come for some seconds, and returns the rates that arrive and that are
// served in the last second.
func (l *loop) run(seconds, capacity float64, demand map[int]float64) (arrived map[int]float64, served float64) {
	arrived = map[int]float64{}
	for i := range int(seconds / loopTick) {
		heard := l.late[0]
		var fresh [Classes]float64
		sum := 0.0
		for class, rate := range demand {
			share := 1.0
			switch p := Priority(class); {
			case heard.Reduce == 0 || p > heard.Priority:
			case p == heard.Priority:
				share = 1 - heard.Reduce
			default:
				share = 0
			}
			n := l.poisson(rate*share*loopTick) + l.poisson(loopTick) // a probe a second
			fresh[class] = n
			sum += n
			if float64(i)*loopTick >= seconds-1 {
				arrived[class] += n
			}
		}
		passed := min(sum, capacity*loopTick)
		if float64(i)*loopTick >= seconds-1 {
			served += passed
		}
		l.adviser.step(&Tick{Dt: loopTick, Admitted: passed, Left: passed, Refused: sum - passed}, &fresh)
		l.late = append(l.late[1:], l.adviser.advice())
	}
	return arrived, served
}

func (l *loop) poisson(mean float64) (n float64) {
	for sum := l.rng.ExpFloat64(); sum < mean; sum += l.rng.ExpFloat64() {
		n++
	}
	return n
}

// Clients that follow send a little more than the service can answer, whatever they want to send.
func TestAdviceFindsTheCapacity(t *testing.T) {
	for _, c := range []struct {
		demand map[int]float64 // as multiples of the capacity
		level  int
		most   float64
	}{
		{map[int]float64{0: 2}, 0, 1.6},
		{map[int]float64{0: 10}, 0, 1.6},
		{map[int]float64{0: 50}, 0, 2.9}, // at most 0.95 of a class is held back
		{map[int]float64{-4: 10}, -4, 1.6},
		{map[int]float64{-4: 5, 0: 4, 4: 0.5}, 0, 1.6},
		{map[int]float64{-4: 9, 0: 0.5, 4: 0.2}, -4, 1.6},
		{map[int]float64{-4: 3, 0: 3, 4: 5}, 4, 1.6},
		{map[int]float64{-2: 4, -1: 3, 0: 2, 1: 1.1}, 0, 1.8},
	} {
		const capacity = 1000
		l := newLoop()
		demand := map[int]float64{}
		for p, x := range c.demand {
			demand[Class(p)] = x * capacity
		}
		l.run(2, capacity, map[int]float64{Class(0): 0.7 * capacity})
		require.Equal(t, Advice{}, l.adviser.advice(), "calm")
		l.run(4, capacity, demand)
		for range 8 {
			arrived, served := l.run(1, capacity, demand)
			sum := 0.0
			for _, n := range arrived {
				sum += n
			}
			require.Less(t, sum/capacity, c.most, "%v", c.demand)
			require.Greater(t, served/capacity, 0.95, "%v", c.demand)
			advice := l.adviser.advice()
			require.Equal(t, c.level, advice.Priority, "%v", c.demand)
			require.True(t, advice.Reduce > 0 && advice.Reduce <= 0.95)
		}
		served := 0.0
		for range 4 {
			_, served = l.run(1, capacity, map[int]float64{Class(0): 0.7 * capacity})
		}
		require.InDelta(t, 0.7, served/capacity, 0.1, "everything is sent again: %v", c.demand)
		l.run(12, capacity, map[int]float64{Class(0): 0.7 * capacity})
		require.Equal(t, Advice{}, l.adviser.advice(), "%v", c.demand)
	}
}

// A little too much is left to the service.
func TestNoAdviceForSmallOverloads(t *testing.T) {
	l := newLoop()
	l.run(10, 1000, map[int]float64{Class(0): 1100})
	require.Equal(t, Advice{}, l.adviser.advice())
}

// Clients that do not listen change nothing but the advice.
func TestAdviceThatIsNotFollowed(t *testing.T) {
	l := newLoop()
	for range 500 {
		fresh := [Classes]float64{exact + coarse: 100}
		l.adviser.step(&Tick{Dt: loopTick, Admitted: 10, Left: 10, Refused: 90}, &fresh)
	}
	require.Equal(t, Advice{Priority: 0, Reduce: 0.95}, l.adviser.advice())
	for range 250 {
		fresh := [Classes]float64{exact + coarse: 5}
		l.adviser.step(&Tick{Dt: loopTick, Admitted: 5, Left: 5}, &fresh)
	}
	require.Equal(t, Advice{}, l.adviser.advice(), "5 s after the overload")
}

// Any input gives an advice within its bounds.
func TestAdviceOfAnyInput(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	odd := []float64{0, 1e-9, 0.02, 1, 100, 1e9, math.Inf(1), math.NaN()}
	for range 300 {
		var a adviser
		for range 50 {
			var fresh [Classes]float64
			for range rng.IntN(4) {
				fresh[rng.IntN(Classes)] = odd[rng.IntN(len(odd)-2)]
			}
			pick := func() float64 { return odd[rng.IntN(len(odd)-2)] }
			a.step(&Tick{Dt: odd[rng.IntN(len(odd))], Admitted: pick(), Left: pick(), Refused: pick()}, &fresh)
			got := a.advice()
			require.True(t, got.Reduce == 0 || got.Reduce >= 0.001 && got.Reduce <= 1-leastKept, "%+v", got)
		}
	}
}
