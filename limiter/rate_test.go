package limiter_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

func TestRateText(t *testing.T) {
	for text, rate := range map[string]limiter.Rate{
		"100/s": limiter.Per(100, time.Second), "7/m": limiter.Per(7, time.Minute), "3/h": limiter.Per(3, time.Hour),
		"1/ms": limiter.Per(1, time.Millisecond), "2/µs": limiter.Per(2, time.Microsecond), "5/ns": limiter.Per(5, 1),
		"7/1m30s": limiter.Per(7, 90*time.Second), "1/10h0m0s": limiter.Per(1, 10*time.Hour), "1/11s": limiter.Per(1, 11*time.Second),
		"0/s": limiter.Per(0, time.Second), "-1/0s": limiter.Per(-1, 0),
	} {
		b, err := json.Marshal(map[string]limiter.Rate{"r": rate})
		require.NoError(t, err)
		require.JSONEq(t, `{"r": "`+text+`"}`, string(b))
		var back map[string]limiter.Rate
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, rate, back["r"])
	}
	for text, rate := range map[string]limiter.Rate{"60/1m": limiter.Per(60, time.Minute), "1/24h": limiter.Per(1, 24*time.Hour)} {
		var r limiter.Rate
		require.NoError(t, r.UnmarshalText([]byte(text)))
		require.Equal(t, rate, r)
	}
	for _, text := range []string{"", "100", "/s", "100/", "1.5/s", "100/x", "a/s", "100/s/s", "100 /s", "99999999999999999999/s"} {
		r := limiter.Per(1, time.Second)
		require.ErrorContains(t, r.UnmarshalText([]byte(text)), `limiter: Rate must be tokens and a time, such as "100/s"`, text)
		require.Equal(t, limiter.Per(1, time.Second), r)
	}
}

func TestRateCompare(t *testing.T) {
	ascending := []limiter.Rate{
		{}, limiter.Per(1, math.MaxInt64), limiter.Per(1, time.Hour), limiter.Per(1, time.Second), limiter.Per(61, time.Minute),
		limiter.Per(math.MaxInt32, time.Second), limiter.Per(math.MaxInt32, 1),
	}
	for i, a := range ascending {
		for j, b := range ascending {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			require.Equal(t, want, a.Compare(b), "%v, %v", a, b)
		}
	}
	require.Zero(t, limiter.Per(60, time.Minute).Compare(limiter.Per(1, time.Second)))
	require.Zero(t, limiter.Per(-1, time.Minute).Compare(limiter.Per(0, time.Second)))
}
