package breaker

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzRing runs any order of operations on a ring and on a list of all that ever happened.
func FuzzRing(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"))
	f.Add([]byte("\x10\xff\xff\x20\x00\x01\x30\x00\x00\x41\xff\xff\x00\x00\x00\x50\x01\x01"))
	// Calls begin at 0, one comes from 256 s ahead, and those of 0 end until the ring is wound back, twice.
	late := strings.Repeat("\x02\x00\x00", 4) + "\x02\x00\x40" + strings.Repeat("\x05\x00\x00", 9) + strings.Repeat("\x04\x01\x00", 3) +
		strings.Repeat("\x02\x40\x00", 3)
	f.Add([]byte(late + late))
	f.Fuzz(func(t *testing.T, ops []byte) {
		span := instant(time.Second)
		g := newRing(4*time.Second, 4, 3*time.Second)
		var now instant
		var calls []int64 // slots in which the calls under way began
		type outcome struct {
			slot int64
			v    verdict
		}
		var outcomes []outcome
		shift := int64(0)               // of the numbers of slots, by winding back
		ceil := func(i instant) int64 { // another way to reckon it
			slot := int64(i/span) - 2
			for instant(slot)*span < i {
				slot++
			}
			return slot + shift
		}
		for ; len(ops) >= 3; ops = ops[3:] {
			arg := instant(int16(binary.LittleEndian.Uint16(ops[1:])))
			at := now + arg*span/64 // also back, and far ahead
			switch ops[0] % 8 {
			case 0, 1:
				now += max(arg, -arg) * span / 4096
				continue
			case 2, 3:
				require.Equal(t, ceil(at), g.begin(at))
				calls = append(calls, ceil(at))
			case 4:
				if len(calls) > 0 {
					i := int(ops[1]) % len(calls)
					g.finish(calls[i])
					calls = append(calls[:i], calls[i+1:]...)
				}
				continue
			case 5, 6:
				v := verdict(ops[0]>>4) & (failed | slow | ignored)
				if v&ignored != 0 {
					v = ignored
				}
				newest := g.newest.Load()
				slot := g.slot(at)
				require.Equal(t, ceil(at), slot)
				switch rewound := g.add(slot, v); {
				case rewound: // all that was counted is forgotten, and all calls under way are older than the ring
					shift += newest + g.size - slot
					outcomes = []outcome{{newest + g.size, v}}
				case slot <= newest-g.buckets: // from before the window: it counts in the newest slot
					outcomes = append(outcomes, outcome{newest, v})
				default:
					outcomes = append(outcomes, outcome{slot, v})
				}
			case 7:
				g.forget()
				outcomes = nil
			}
			require.EqualValues(t, len(calls), g.allInFlight())
			var want counts
			last := max(g.newest.Load(), ceil(now))
			for _, o := range outcomes {
				if o.slot <= last-4 {
					continue
				}
				switch {
				case o.v&ignored != 0:
					want.ignored++
				case o.v&failed != 0:
					want.failures++
				default:
					want.successes++
				}
				if o.v&slow != 0 {
					want.slow++
				}
			}
			require.Equal(t, want, g.sum(now))
			from, to := g.newest.Load()-g.size+1, g.newest.Load()-1
			n := 0
			for _, slot := range calls {
				if slot >= from && slot <= to {
					n++
				}
			}
			require.EqualValues(t, n, g.inFlight(from, to))
		}
	})
}

// A slot ends with its last instant, on the quick ways too, and also after the ring was wound back.
func TestSlotsAreExact(t *testing.T) {
	span := instant(time.Second)
	for _, wound := range []bool{false, true} {
		g := newRing(4*time.Second, 4, 3*time.Second)
		if wound {
			g.slot(1000 * span)
			for range rewindAfter {
				g.add(g.slot(3*span), 0)
			}
		}
		slot := g.slot(5 * span)
		require.Equal(t, 5*span, g.end(slot))
		require.Equal(t, wound, slot != 5)
		require.Equal(t, slot, g.slot(4*span+1))
		require.Equal(t, slot-1, g.slot(4*span))
		require.Equal(t, slot-1, g.begin(4*span))
		require.Equal(t, slot, g.begin(4*span+1))
		require.Equal(t, slot, g.begin(5*span))
		before := g.sum(5 * span)
		for i, quick := range map[instant]bool{4 * span: false, 4*span + 1: true, 5 * span: true, 5*span + 1: false} {
			require.Equal(t, quick, g.succeed(i, uint32(slot)), i)
			require.False(t, g.succeed(i, uint32(slot-1)))
			require.False(t, g.succeed(i, uint32(slot+1)))
		}
		require.Equal(t, before.successes+2, g.sum(5*span).successes)
		require.Zero(t, g.inFlight(slot, slot))
		require.EqualValues(t, 1, g.allInFlight())
		require.Equal(t, slot+1, g.begin(5*span+1))
		require.EqualValues(t, 2, g.inFlight(slot-1, slot+1))
		require.EqualValues(t, 1, g.inFlight(slot, slot+1))
		require.True(t, g.holds(slot+1))
		require.False(t, g.holds(slot+2), "it lies ahead")
		require.True(t, g.holds(slot+2-g.size))
		require.False(t, g.holds(slot+1-g.size), "it has left")
	}
}

func TestRatesCompareExactly(t *testing.T) {
	for total := int64(1); total <= 300; total++ {
		for n := int64(0); n <= total; n++ {
			for percent := int64(1); percent <= 100; percent++ {
				want := n*100 >= percent*total
				if got := rateOf(float64(percent)/100).reachedBy(n, total); got != want {
					t.Fatalf("%d of %d reach %d %%: %v", n, total, percent, got)
				}
			}
			require.True(t, rateOf(float64(n)/float64(total)).reachedBy(n, total))
		}
	}
	require.False(t, rateOf(0.5).reachedBy(0, 0))
	require.False(t, rateOf(Off).reachedBy(1, 1))
	require.True(t, rateOf(0.5).reachedBy(1<<60, 1<<61))
	require.False(t, rateOf(0.5).reachedBy(1<<59, 1<<61))
}

func TestInstantsDoNotOverflow(t *testing.T) {
	var b base
	require.EqualValues(t, 0, b.instant(time.Unix(0, 0)))
	require.Equal(t, instant(maxSpan), b.instant(time.Unix(1<<40, 0)))
	require.Equal(t, instant(-maxSpan), b.instant(time.Unix(-1<<40, 0)))
	require.Equal(t, instant(maxSpan), instant(maxSpan).after(1<<62))
	require.True(t, b.at(never).IsZero())
	require.True(t, b.at(longAgo).IsZero())
	require.Equal(t, time.Unix(5, 0), b.at(instant(5*time.Second)))
}
