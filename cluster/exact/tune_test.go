package exact

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// everyRule returns one rule of each kind with room for so many in an hour.
func everyRule(room int) []limiter.Rule {
	return []limiter.Rule{
		limiter.Bucket{Rate: limiter.Per(room, time.Hour), Burst: room},
		limiter.FixedWindow{Limit: room, Period: time.Hour},
		limiter.FixedWindow{Limit: room, Calendar: limiter.EveryMonth},
		limiter.SlidingWindow{Limit: room, Window: time.Hour},
		limiter.SlidingLog{Limit: room, Window: time.Hour},
	}
}

// Rules are changed while a limit is in use: what was taken stays taken, and what was refused from memory is asked again.
func TestSetRules(t *testing.T) {
	client := server(t)
	for i, rule := range everyRule(5) {
		l := newLimit(t, client, Options{Name: t.Name(), Rules: []limiter.Rule{rule}})
		takes := func(n int, ok bool) {
			t.Helper()
			r, err := l.Take(t.Context(), "k", n)
			require.NoError(t, err, rule)
			require.NoError(t, r.Err, rule)
			require.Equal(t, ok, r.Allowed, rule)
		}
		takes(4, true)
		takes(2, false)
		require.NoError(t, l.Tune(everyRule(9)[i]))
		takes(2, true) // and not refused from memory
		require.NoError(t, l.Tune(everyRule(3)[i]))
		takes(1, false)
		r, err := l.Take(t.Context(), "k", 0)
		require.NoError(t, err)
		require.Zero(t, r.Remaining, rule)
		require.EqualValues(t, 3, r.Limit, rule)
		_, err = l.Take(t.Context(), "k", 4)
		var ce *limiter.CostError
		require.ErrorAs(t, err, &ce, rule)
		require.NoError(t, l.Tune(everyRule(20)[i]))
		takes(14, true)
		takes(1, false)
	}
}

// While processes differ, the greatest of their limits counts.
func TestSetRulesOfOneProcess(t *testing.T) {
	client := server(t)
	for i, rule := range everyRule(5) {
		one := newLimit(t, client, Options{Name: t.Name(), Rules: []limiter.Rule{rule}})
		other := newLimit(t, client, Options{Name: t.Name(), Rules: []limiter.Rule{rule}})
		require.NoError(t, one.Tune(everyRule(12)[i]))
		passed := [2]int{}
		for range 12 {
			for j, l := range []*Limit{other, one} {
				r, err := l.Take(t.Context(), "k", 1)
				require.NoError(t, err)
				passed[j] += int(r.Taken)
			}
		}
		require.Equal(t, 12, passed[0]+passed[1], rule)
		require.LessOrEqual(t, passed[0], 5, rule)
	}
}

// The share without Redis follows too.
func TestSetRulesWithoutRedis(t *testing.T) {
	l := newLimit(t, deadRedis(t), Options{Nodes: 2, Rules: []limiter.Rule{limiter.FixedWindow{Limit: 8, Period: time.Hour}}})
	passed := func() (n int64) {
		for range 20 {
			r, err := l.Take(t.Context(), "k", 1)
			require.NoError(t, err)
			n += r.Taken
		}
		return n
	}
	require.EqualValues(t, 4, passed())
	require.NoError(t, l.Tune(limiter.FixedWindow{Limit: 14, Period: time.Hour}))
	require.EqualValues(t, 3, passed())
}

func TestSetRulesValidates(t *testing.T) {
	l := newLimit(t, deadRedis(t), Options{Nodes: 2, Rules: everyRule(5)[:1]})
	for want, rules := range map[string][]limiter.Rule{
		"exact: Tune: Rules must be 1, as before, got 0": nil,
		`exact: Tune: Rules[0] must be of the kind and name of "token bucket: 5 per 1h0m0s, at most 5 at once", got "sliding log: 5 in 1h0m0s"`:                      everyRule(5)[4:],
		`exact: Tune: Rules[0] must be of the kind and name of "token bucket: 5 per 1h0m0s, at most 5 at once", got "leaky bucket: 5 per 1h0m0s, at most 5 at once"`: {limiter.Bucket{Rate: limiter.Per(5, time.Hour), Name: "leaky bucket"}},
		"exact: Tune: Rules[0]: limiter: Bucket: Rate.Tokens must not be negative, got -1":                                                                           {limiter.Bucket{Rate: limiter.Rate{Tokens: -1, Per: time.Hour}}},
	} {
		require.EqualError(t, l.Tune(rules...), want)
	}
	require.Equal(t, []rule{of(everyRule(5)[0])}, l.rules())
	require.Error(t, new(Limit).Tune(everyRule(5)...))
}

// An Allowance follows its Limit.
func TestSetRulesOfAnAllowance(t *testing.T) {
	client := server(t)
	w := limiter.FixedWindow{Limit: 50, Period: time.Hour}
	a := newAllowance(t, client, w, AllowanceOptions{Nodes: 1, Chunk: 8})
	passed := func() (n int) {
		for range 200 {
			if _, err := a.Admit(t.Context(), requestOf("k")); err == nil {
				n++
			}
		}
		return n
	}
	require.Equal(t, 50, passed())
	w.Limit = 80
	require.NoError(t, a.limit.Tune(w))
	require.Equal(t, 30, passed())
}

func requestOf(key string) spillway.Request { return spillway.Request{Key: key, Arrived: time.Now()} }
