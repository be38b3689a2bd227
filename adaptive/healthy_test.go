package adaptive

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A feeder gives a healthy one success of the given latency every 100 ms.
type feeder struct {
	h   healthy
	o   Options
	now time.Time
}

func (f *feeder) run(d, latency time.Duration) {
	for end := f.now.Add(d); f.now.Before(end); f.now = f.now.Add(100 * ms) {
		f.h.add(f.now, latency, f.o.MaxRise)
	}
}

func (f *feeder) ceiling() time.Duration { return f.h.ceiling(&f.o).Round(ms) }

func TestCeilingGrowsByMaxRiseInAnHour(t *testing.T) {
	for _, rise := range []float64{1.5, 2, 10} {
		f := feeder{o: Options{MaxRise: rise}}
		require.Zero(t, f.ceiling(), "nothing is known")
		f.run(10*time.Minute, 100*ms)
		most := time.Duration(rise * float64(100*ms))
		require.Equal(t, most, f.ceiling())
		f.run(time.Hour, 20*time.Second)
		require.Equal(t, most, f.ceiling(), "an hour of incident")
		f.run(5*time.Minute, 20*time.Second)
		require.Equal(t, time.Duration(rise*float64(most)), f.ceiling(), "a factor of MaxRise an hour")
		f.run(3*time.Minute, 100*ms)
		require.Equal(t, most, f.ceiling(), "it falls within two minutes")
	}
}

func TestCeilingIsKnownAfterHundredSuccesses(t *testing.T) {
	f := feeder{o: Options{MaxRise: 2}}
	f.run(9900*ms, 10*ms)
	require.Zero(t, f.ceiling())
	f.run(100*ms, 10*ms)
	require.Equal(t, 20*ms, f.ceiling())
}

// Neither a quiet night, nor a clock that steps, nor a few fast requests make it forget or move it much.
func TestCeilingCountsMinutesWithTraffic(t *testing.T) {
	f := feeder{o: Options{MaxRise: 2}}
	f.run(10*time.Minute, 100*ms)
	for range 100 {
		f.now = f.now.Add(24 * time.Hour)
		f.h.add(f.now, time.Second, 2)
	}
	require.Equal(t, 200*ms, f.ceiling())
	f.now = f.now.Add(-1000 * time.Hour)
	f.run(2*time.Minute, 50*ms)
	require.Equal(t, 100*ms, f.ceiling(), "it goes on after the clock stepped back")
	f.run(time.Minute, 100*ms)
	f.run(time.Second, time.Microsecond)
	f.run(2*time.Minute, 100*ms)
	require.Equal(t, 100*ms, f.ceiling())
}

func TestMaxBaselineAndOff(t *testing.T) {
	f := feeder{o: Options{MaxRise: 2, MaxBaseline: 150 * ms}}
	require.Equal(t, 150*ms, f.ceiling(), "it holds from the start")
	f.run(time.Minute, 100*ms)
	require.Equal(t, 150*ms, f.ceiling())
	f.run(2*time.Minute, 10*ms)
	require.Equal(t, 20*ms, f.ceiling(), "the lesser of both")
	f.o.MaxRise = Off
	f.run(10*time.Minute, time.Second)
	require.Equal(t, 150*ms, f.ceiling())
	f.o.MaxBaseline = 0
	require.Zero(t, f.ceiling())
	f.o.MaxRise = 2
	require.Equal(t, 20*ms, f.ceiling(), "what was learned meanwhile counts again")
}
