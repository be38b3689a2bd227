package level

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/internal/splitmix"
)

// maxMin returns the level at which the given share of all rates is admitted, by a list of all.
func maxMin(rates []float64, pass float64) float64 {
	rates = slices.Sorted(slices.Values(rates))
	left := 0.0
	for _, r := range rates {
		left += pass * r
	}
	for i, r := range rates {
		if level := left / float64(len(rates)-i); level <= r {
			return level
		}
		left -= r
	}
	return math.Inf(1)
}

// ratesOf returns n requests by keys of the given rates.
func ratesOf(rng *rand.Rand, keys []float64, n int) *rates {
	r, all := &rates{ready: true}, 0.0
	for _, k := range keys {
		all += k
	}
	for _, k := range keys {
		for range int(float64(n)*k/all + rng.Float64()) {
			r.add(k, 0)
		}
	}
	return r
}

// The level is that of the max-min fair shares, though the planner knows no key.
func TestLevelAgainstAListOfKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		rates := make([]float64, 1+rng.IntN(60))
		for i := range rates {
			rates[i] = 16 * math.Exp(rng.Float64()*5)
		}
		pass := 0.1 + 0.85*rng.Float64()
		want := maxMin(rates, pass)
		if want < 16 {
			continue
		}
		c := ratesOf(rng, rates, 20_000).cut(pass, 8)
		if math.IsInf(c.level, 1) {
			require.Less(t, slices.Max(rates), unequal*1.1*slices.Min(rates), "all alike")
			continue
		}
		require.InEpsilon(t, want, c.level, 0.1, "%v of %v", pass, rates)
		require.InDelta(t, 1, c.light, 0, "nothing of them is cut")
	}
}

// Keys that the histogram cannot tell apart are cut alike, and no heavy key is better off.
func TestLightKeysAreCutAlike(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	light := slices.Repeat([]float64{2}, 300)
	c := ratesOf(rng, light, 10_000).cut(0.4, 8)
	require.InDelta(t, 0.4, c.light, 1e-9)
	require.Zero(t, c.within)

	c = ratesOf(rng, append(light, 200), 10_000).cut(0.9, 8) // 600 of 800, and room for 720
	require.InDelta(t, 1, c.light, 1e-9)
	require.InEpsilon(t, 120, c.level, 0.05)
	require.InDelta(t, 0.75, c.within, 0.01)
}

// Where the fair share is less than a heavy key sends at least, light keys are cut only if they send more than it
// themselves.
func TestLightKeysCountAsTheirMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	light, heavy := slices.Repeat([]float64{1.5}, 100), slices.Repeat([]float64{20}, 60)
	all := slices.Concat(light, heavy) // 150 and 1200 requests
	for _, want := range []float64{6, 3, 2} {
		pass := (150 + 60*want) / 1350
		c := ratesOf(rng, all, 40_000).cut(pass, 8)
		require.InDelta(t, 1, c.light, 0, "level %v", want)
		require.InEpsilon(t, want, c.level, 0.1)
		require.Positive(t, c.within)
	}
	c := ratesOf(rng, all, 40_000).cut((100*0.75+60*0.75)/1350, 8)
	require.InDelta(t, 0.5, c.light, 0.05, "half of what they send")
}

// A client that invents a key for each request gets nine tenths, or its share of the requests if that is more.
func TestInventedKeysDoNotTakeEverything(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, invented := range []int{100, 250, 500, 1000, 10_000} {
		tenants := slices.Repeat([]float64{25}, 10) // 250 together, and room for 250
		total := float64(250 + invented)
		pass := 250 / total
		c := ratesOf(rng, append(tenants, slices.Repeat([]float64{1}, invented)...), 40_000).cut(pass, 8)
		got := float64(invented) * c.light / 250
		require.LessOrEqual(t, got, max(0.9, float64(invented)/total)+0.02, "%d invented keys", invented)
		each := min(c.light, c.level/25)
		require.InDelta(t, 1, got+each, 0.05, "all is used: they get %v, and a tenant %v", got, each)
		require.LessOrEqual(t, each, c.light)
	}
}

func TestCutsOfAnyHistogram(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 3000 {
		r := rates{ready: rng.IntN(2) == 0}
		for range rng.IntN(50) {
			r.add(math.Exp(rng.Float64()*40-5), float64(rng.IntN(3)))
		}
		floor := math.Ldexp(8, rng.IntN(32))
		c := r.cut([]float64{-1, 0, 1e-9, rng.Float64(), 1, 2, math.Inf(1), math.NaN()}[rng.IntN(8)], floor)
		for _, share := range []float64{c.keyless, c.light, c.within} {
			require.True(t, share >= 0 && share <= 1.0000001, "%+v", c)
		}
		require.GreaterOrEqual(t, c.level, 0.0)
	}
}

func TestSketchCountsWhatIsInTheWindow(t *testing.T) {
	k := newSketch(1)
	rng := rand.New(rand.NewPCG(9, 10))
	tenants := map[string]int{"a": 200, "b": 40, "c": 10}
	for i := range 1000 { // ten seconds of ticks, with 1000 light keys between
		k.turn(0.01, 2)
		for key, perSecond := range tenants {
			if rng.IntN(100) < perSecond%100 {
				k.add(k.place(3, 0, key), 1)
			}
			for range perSecond / 100 {
				k.add(k.place(3, 0, key), 1)
			}
		}
		k.add(k.place(3, 0, "light-"+strconv.Itoa(i)), 1)
	}
	got := func(class int, key string) float64 { return float64(k.estimate(k.place(class, 0, key))) / (1 << part) }
	require.InEpsilon(t, 400, got(3, "a"), 0.02)
	require.InEpsilon(t, 80, got(3, "b"), 0.3)
	require.InDelta(t, 20, got(3, "c"), 13)
	require.LessOrEqual(t, got(3, "light-500"), 2.0)
	require.LessOrEqual(t, got(4, "a"), 2.0, "another class")
	k.turn(3, 2)
	require.Less(t, got(3, "a"), 250.0)
	k.turn(5, 2)
	require.Zero(t, got(3, "a"))
	k.add(k.place(3, 0, "a"), 1)
	require.InDelta(t, 1, got(3, "a"), 1e-9)
	k.turn(math.NaN(), 2)
	k.turn(0, 2)
	require.Zero(t, got(3, "a"))
}

// With a million tenants, a heavy one is seen, a light one is not taken for one, and memory is what it is for ten.
func TestSketchOfAMillionTenants(t *testing.T) {
	k := newSketch(2)
	tenants := 1_000_000
	if race.Enabled {
		tenants = 100_000
	}
	for i := range tenants {
		k.add(k.place(3, 0, strconv.Itoa(i)), 1)
		if i%20 == 0 {
			k.add(k.place(3, 0, "heavy"), 1)
		}
	}
	require.InEpsilon(t, tenants/20<<part, k.estimate(k.place(3, 0, "heavy")), 0.01)
	worst := uint64(0)
	for i := range 1000 {
		worst = max(worst, k.estimate(k.place(3, 0, strconv.Itoa(i*997))))
	}
	require.Less(t, worst, uint64(tenants/1000<<part), "a thousandth of all requests")
	require.Less(t, unsafe.Sizeof(*k), uintptr(210<<10))
}

// A stranger who knows the hash of positions can make keys with equal ones. They do not meet in a sketch, whose seed is
// its own.
func TestKeysMadeToCollideDoNotMeetInASketch(t *testing.T) {
	victim := "0123456789abcdef"
	first := uint64(len(victim)) << 32
	first *= splitmix.Gamma
	word := func(s string) uint64 { return binary.LittleEndian.Uint64([]byte(s)) }
	k := newSketch(uint64(time.Now().UnixNano()))
	for i := range 1000 {
		forged := binary.LittleEndian.AppendUint64(nil, uint64(i))
		second := splitmix.Mix(first^word(victim)) ^ word(victim[8:]) ^ splitmix.Mix(first^uint64(i))
		forged = binary.LittleEndian.AppendUint64(forged, second)
		require.Equal(t, Position(victim, 0), Position(string(forged), 0))
		k.add(k.place(3, 0, string(forged)), 1000)
	}
	require.Less(t, k.estimate(k.place(3, 0, victim)), uint64(4000<<part))
}
