package limiter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/roundup"

	"github.com/spillway-go/spillway/internal/rejections"
)

func TestRetryAfterIsRoundedUpALittle(t *testing.T) {
	r := &refusals{Set: rejections.New("p", "r", true)}
	check := func(wait time.Duration) {
		t.Helper()
		rej := r.after(wait)
		if told := rej.RetryAfter; told < wait || told > wait+max(wait/16, 0)+roundup.Tick {
			t.Fatalf("a wait of %v is told as %v", wait, told)
		}
		if rej != r.after(wait) || rej != r.after(rej.RetryAfter) {
			t.Fatalf("the rejection after %v is not shared", wait)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		check(time.Duration(rng.Int64N(horizon/2) >> rng.IntN(61)))
	}
	for wait := time.Duration(0); wait < time.Second; wait += 100 * time.Microsecond {
		check(wait)
	}
	for _, exact := range []time.Duration{1, 2, 4, 8, 16, 24, 64, 4096} {
		require.Equal(t, exact*time.Second, r.after(exact*time.Second).RetryAfter)
	}
	require.Equal(t, roundup.Tick, r.after(0).RetryAfter)
	for _, unknown := range []time.Duration{never, -1, math.MinInt64, horizon} {
		require.Zero(t, r.after(unknown).RetryAfter)
	}
}

// However the waits vary, there are few rejections: none is built per request.
func TestRejectionsAreShared(t *testing.T) {
	r := &refusals{Set: rejections.New("p", "r", true)}
	seen := map[any]bool{}
	for wait := time.Duration(1); wait < horizon/2; wait += wait/1000 + 1000 {
		seen[r.after(wait)] = true
	}
	require.LessOrEqual(t, len(seen), roundup.Count)
}

func TestRateText(t *testing.T) {
	require.Equal(t, "7 per 1m0s", Per(7, time.Minute).String())
}
