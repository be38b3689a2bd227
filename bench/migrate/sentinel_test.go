package migrate

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	sentinel "github.com/alibaba/sentinel-golang/api"
	"github.com/alibaba/sentinel-golang/core/circuitbreaker"
	"github.com/alibaba/sentinel-golang/core/flow"
	"github.com/alibaba/sentinel-golang/core/system_metric"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/limiter"
)

func loadSentinel(resource string) error {
	_, err := flow.LoadRules([]*flow.Rule{{
		Resource:         resource,
		Threshold:        100,
		StatIntervalInMs: 1000,
	}})
	if err != nil {
		return err
	}
	_, err = circuitbreaker.LoadRules([]*circuitbreaker.Rule{{
		Resource:                     resource,
		Strategy:                     circuitbreaker.ErrorRatio,
		Threshold:                    0.5,
		MinRequestAmount:             20,
		StatIntervalMs:               10_000,
		StatSlidingWindowBucketCount: 10,
		RetryTimeoutMs:               5000,
		ProbeNum:                     3,
	}})
	return err
}

func sentinelBefore(resource string, fetch func() (int, error)) (int, error) {
	entry, blocked := sentinel.Entry(resource)
	if blocked != nil {
		return 0, blocked
	}
	defer entry.Exit()
	price, err := fetch()
	if err != nil {
		sentinel.TraceError(entry, err)
	}
	return price, err
}

func gateLikeSentinel() (*spillway.Gate, error) {
	rate, err := limiter.New(limiter.SlidingWindow{Limit: 100, Window: time.Second})
	if err != nil {
		return nil, err
	}
	brk, err := breaker.New(&breaker.Options{
		FailureRate: 0.5,
		MinCalls:    20,
		Window:      10 * time.Second,
		Consecutive: breaker.Off, // a rate is the only rule
		OpenFor:     5 * time.Second,
		Probes:      3,
	})
	if err != nil {
		return nil, err
	}
	return spillway.New(rate, brk), nil
}

func sentinelAfter(ctx context.Context, gate *spillway.Gate, fetch func() (int, error)) (price int, err error) {
	err = spillway.Do(ctx, gate, spillway.Request{}, func(context.Context) error {
		price, err = fetch()
		return err
	})
	return price, err
}

// sentinelPair returns both programs with new state: Sentinel keeps it under the name of the resource, for the life of the
// process.
func sentinelPair(t *testing.T, resource string) map[string]func(fetch func() (int, error)) (int, error) {
	t.Helper()
	require.NoError(t, loadSentinel(resource))
	gate, err := gateLikeSentinel()
	require.NoError(t, err)
	return map[string]func(fetch func() (int, error)) (int, error){
		"before": func(fetch func() (int, error)) (int, error) { return sentinelBefore(resource, fetch) },
		"after":  func(fetch func() (int, error)) (int, error) { return sentinelAfter(t.Context(), gate, fetch) },
	}
}

// unique returns a resource that no earlier test of the process has used.
func unique(t *testing.T) string {
	t.Helper()
	return t.Name() + strconv.FormatInt(time.Now().UnixNano(), 10)
}

// A thousand calls per second begin late in a window of half a second.
func TestSentinelFlow(t *testing.T) {
	resource := unique(t)
	synctest.Test(t, func(t *testing.T) {
		most := map[string]int{}
		for name, prices := range sentinelPair(t, resource) {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1450 * time.Millisecond)))
			for range 1000 {
				if _, err := prices(up); err == nil {
					most[name]++
				}
				time.Sleep(time.Millisecond)
			}
		}
		require.Equal(t, map[string]int{"before": 150, "after": 100}, most, "in one second")
	})
}

// The dependency fails, and later fifty calls come at once.
func TestSentinelProbes(t *testing.T) {
	resource := unique(t)
	synctest.Test(t, func(t *testing.T) {
		for name, prices := range sentinelPair(t, resource) {
			for range 20 {
				_, err := prices(down)
				require.ErrorIs(t, err, errDown, name)
			}
			_, err := prices(up)
			require.Error(t, err, name)
			time.Sleep(7 * time.Second)
			ran, release := 0, make(chan struct{})
			for range 50 {
				go func() {
					_, _ = prices(func() (int, error) { ran++; <-release; return 7, nil })
				}()
				synctest.Wait()
			}
			require.Equal(t, map[string]int{"before": 50, "after": 3}[name], ran, name)
			close(release)
			synctest.Wait()
		}
	})
}

func TestSentinelInvalidRule(t *testing.T) {
	resource := unique(t)
	_, err := flow.LoadRules([]*flow.Rule{{Resource: resource, Threshold: -1, StatIntervalInMs: 1000}})
	require.NoError(t, err)
	for range 1000 {
		_, err := sentinelBefore(resource, up)
		require.NoError(t, err, "there is no rule")
	}
	_, err = limiter.New(limiter.SlidingWindow{Limit: -1, Window: time.Second})
	require.ErrorContains(t, err, "Limit")
}

// The trigger of a rule for the CPU is at most 1, but the reading is in percent of one core.
func TestSentinelCPU(t *testing.T) {
	system_metric.InitCpuCollector(10)
	for begin := time.Now(); system_metric.CurrentCpuUsage() <= 1; {
		require.Less(t, time.Since(begin), 10*time.Second)
	}
}
