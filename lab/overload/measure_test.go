package overload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// steady returns a stretch with a request every 10 ms that all end alike.
func steady(load float64, from, to time.Duration, k kind, latency time.Duration) *stretch {
	s := &stretch{Span: Span{Load: load, Start: from.Seconds(), End: to.Seconds()}, from: from, to: to}
	for at := from; at < to; at += 10 * ms {
		s.samples = append(s.samples, sample{at: at, latency: latency, kind: k, late: latency > defaultSLO})
	}
	return s
}

func TestGoodputCountsWhatIsUseful(t *testing.T) {
	l := steady(2, 0, 10*time.Second, answered, 20*ms) // 100 a second
	for i := range l.samples {
		switch i % 10 {
		case 0:
			l.samples[i].latency, l.samples[i].late = defaultSLO+1, true // answered, and worthless
		case 1, 2, 3:
			l.samples[i].kind = refused
		case 4:
			l.samples[i].kind = timeout
		}
	}
	r := l.result("g", 50)
	require.InDelta(t, 100, r.Offered, 0.01)
	require.InDelta(t, 50.0/50, r.Goodput, 1e-9, "half of a hundred a second, at a capacity of 50")
	require.InDelta(t, 1, r.GoodputAll, 1e-9)
	require.InDelta(t, 0.3, r.Shed, 1e-9)
	require.InDelta(t, 0.1, r.Timeouts, 1e-9)
	require.InDelta(t, 20, *r.P50, 1e-9)
	require.InDelta(t, 500, *r.P99, 1e-3, "a sixth of the answers came late")
	require.InDelta(t, 0.010+0.020, *r.FirstRefusal, 1e-9)
	require.Zero(t, *r.FirstMiss)
}

func TestGoodputOfTheLastHalf(t *testing.T) {
	l := steady(5, 4*time.Second, 14*time.Second, answered, ms)
	for i := range l.samples {
		if l.samples[i].at < 9*time.Second {
			l.samples[i].kind = timeout
		}
	}
	r := l.result("g", 100)
	require.InDelta(t, 1, r.Goodput, 1e-9)
	require.InDelta(t, 0.5, r.GoodputAll, 1e-9)
	require.Zero(t, r.Goodput1s)
	require.Zero(t, r.Goodput5s)
	require.Zero(t, r.Timeouts)
	require.InDelta(t, 0.5, r.TimeoutsAll, 1e-9)
}

func TestNothingAnswered(t *testing.T) {
	r := steady(10, 0, time.Second, timeout, defaultDeadline).result("none", 100)
	require.Nil(t, r.P50)
	require.Nil(t, r.P99)
	require.Nil(t, r.RefusedP99)
	require.Nil(t, r.FirstRefusal)
	require.Zero(t, r.Goodput)
	require.InDelta(t, 1, r.Timeouts, 1e-9)
}

func TestQuantileIsNearestRank(t *testing.T) {
	var d []time.Duration
	require.Nil(t, quantile(d, 0.5))
	for i := 1; i <= 100; i++ {
		d = append(d, time.Duration(i)*ms)
	}
	require.InDelta(t, 50, *quantile(d, 0.5), 0)
	require.InDelta(t, 99, *quantile(d, 0.99), 0)
	require.InDelta(t, 100, *quantile(d, 1), 0)
	require.InDelta(t, 1, *quantile(d, 0), 0)
	require.InDelta(t, 1, *quantile(d[:1], 0.99), 0)
}

func TestRecovered(t *testing.T) {
	const before = 20 * ms
	calm := steady(0.5, 0, 5*time.Second, answered, 15*ms)
	require.Zero(t, *calm.recovered(before))

	slow := steady(0.5, 0, 5*time.Second, answered, 15*ms)
	for i := range slow.samples[:180] { // 1.8 s
		slow.samples[i].latency = 100 * ms
	}
	require.InDelta(t, 1.8, *slow.recovered(before), 0.11)

	refusing := steady(0.5, 0, 5*time.Second, answered, 15*ms)
	for i := range refusing.samples[:180] {
		refusing.samples[i].kind = refused
	}
	require.InDelta(t, 1.8, *refusing.recovered(before), 0.11)

	require.Nil(t, steady(0.5, 0, 5*time.Second, timeout, defaultDeadline).recovered(before))
	require.Nil(t, steady(0.5, 0, 5*time.Second, answered, 100*ms).recovered(before))
}

func TestPointsCountEveryRequestOnce(t *testing.T) {
	l := steady(1, 0, time.Second, answered, ms)
	l.samples[5].kind = refused
	l.samples[15].latency, l.samples[15].late = defaultSLO+1, true
	p := points(l.samples, 1050*ms)
	require.Len(t, p, 11)
	require.Equal(t, Point{T: 0, Sent: 10, Good: 9, Refused: 1, P50: Known(1.0), P99: Known(1.0)}, p[0])
	require.Equal(t, 1, p[1].Late)
	sent := 0
	for _, point := range p {
		sent += point.Sent
	}
	require.Equal(t, 100, sent)
}

// reduced returns the results of stretches that followed each other.
func reduced(stretches ...*stretch) []Result {
	g := &guardRun{runner: &runner{capacity: 200}, guard: "g", stretches: stretches}
	results, _ := g.reduce()
	return results
}

func TestReduceFindsTheRecoveryInTheLightLoadBehind(t *testing.T) {
	settle := steady(0.5, 2*time.Second, 4*time.Second, answered, 5*ms)
	settle.Settle = true
	last := steady(0.5, 6*time.Second, 9*time.Second, answered, 5*ms)
	for i := range last.samples[:100] {
		last.samples[i].latency = 300 * ms
	}
	results := reduced(
		steady(0.5, 0, time.Second, answered, 5*ms),
		steady(2, time.Second, 2*time.Second, refused, 5*ms),
		settle,
		steady(10, 4*time.Second, 6*time.Second, timeout, defaultDeadline),
		last,
	)
	require.Len(t, results, 4, "what is run between the loads is not a result")
	require.Nil(t, results[0].Recovered)
	require.Zero(t, *results[1].Recovered)
	require.InDelta(t, 1, *results[2].Recovered, 0.11)
}

func TestReduceKnowsNoRecoveryOnANewServer(t *testing.T) {
	heavy := steady(10, time.Second, 3*time.Second, timeout, defaultDeadline)
	jammed := steady(0.5, 3*time.Second, 5*time.Second, timeout, defaultDeadline)
	fresh := steady(0.5, 5500*ms, 8*time.Second, answered, 5*ms) // half a second later, on another server
	jammed.Settle, fresh.Settle = true, true
	results := reduced(steady(0.5, 0, time.Second, answered, 5*ms), heavy, jammed, fresh, steady(10, 8*time.Second, 9*time.Second, timeout, defaultDeadline))
	require.Nil(t, results[1].Recovered)
}
