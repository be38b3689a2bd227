package rules_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/rules"
	"github.com/spillway-go/spillway/shedder"
)

// targets returns policies of three kinds in a Set, and their numbers.
func targets(t testing.TB) (set *rules.Set, numbers func() string) {
	shed := spillway.Must(shedder.New(nil))
	brk := spillway.Must(breaker.New(nil))
	lim := spillway.Must(limiter.NewKeyed(limiter.Bucket{Rate: limiter.Per(10, time.Second)}, nil))
	set = newSet(t, map[string]rules.Target{"api": rules.Of(shed), "db": rules.Of(brk), "tenants": rules.Of(lim)})
	return set, func() string {
		o, b := shed.Options(), brk.Options()
		return fmt.Sprintln(o.SLO, o.MaxLimit, o.MinLimit, o.MaxShed, o.Weights, o.Disabled, b.FailureRate, b.MinCalls, b.OpenFor, b.MaxOpen, lim.Rule())
	}
}

const seed = `{"note": "sale", "rules": {"api": {"SLO": "250ms", "MaxLimit": 400, "Weights": {"gold": 2}}, ` +
	`"db": {"FailureRate": 0.25, "OpenFor": "2s"}, "tenants": {"Rate": "100/s", "Burst": 200}}}`

// A document that the standard library cannot read, or whose Apply fails, changes nothing.
func check(t *testing.T, set *rules.Set, numbers func() string, document []byte) (applied bool) {
	before, version := numbers(), set.Stats().Version
	expected := set.Check(document)
	err := set.Apply(document)
	require.Equal(t, expected == nil, err == nil, "Check and Apply agree: %v, %v", expected, err)
	if !json.Valid(document) {
		require.Error(t, err)
	}
	if err != nil {
		require.Equal(t, before, numbers())
		require.Equal(t, version, set.Stats().Version)
		return false
	}
	after := numbers()
	require.NoError(t, set.Apply(set.Document()), "what is in force is a document")
	require.Equal(t, after, numbers())
	return true
}

func TestDamagedDocuments(t *testing.T) {
	set, numbers := targets(t)
	require.NoError(t, set.Apply([]byte(seed)))
	r := rand.New(rand.NewPCG(1, 2))
	applied := 0
	for range 1000 {
		document := []byte(seed)
		for range 1 + r.IntN(3) {
			i := r.IntN(len(document))
			switch r.IntN(4) {
			case 0:
				document = document[:i]
			case 1:
				document[i] = byte(r.Uint32())
			case 2:
				document[i] = "{}\":,0-9.eE"[r.IntN(11)]
			case 3:
				j := i + r.IntN(len(document)-i)
				document = append(append(append([]byte{}, document[:j]...), document[i:j]...), document[j:]...)
			}
			if len(document) == 0 {
				break
			}
		}
		if check(t, set, numbers, document) {
			applied++
		}
	}
	require.Positive(t, applied)
	require.Less(t, applied, 500)
	t.Logf("%d of 1000 are valid", applied)
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte(seed))
	f.Add([]byte(`{"rules": {}}`))
	f.Add([]byte(`{"rules": {"api": {"Signals": {}, "Rotation": "off", "Disabled": true}}}`))
	f.Add([]byte(`{"rules": {"tenants": {"Burst": 0}}, "schema": 1, "$schema": ""}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		set, numbers := targets(t)
		check(t, set, numbers, document)
	})
}

// Requests meet two kinds of numbers, and never a mixture within one target, while documents change.
func TestSwapUnderLoad(t *testing.T) {
	lim := spillway.Must(limiter.NewKeyed(limiter.Bucket{Rate: limiter.Per(1_000_000, time.Second), Burst: 1_000_000}, nil))
	shed := spillway.Must(shedder.New(&shedder.Options{MinLimit: 1000, MaxLimit: 1000}))
	set := newSet(t, map[string]rules.Target{"tenants": rules.Of(lim), "api": rules.Of(shed)})
	gate := spillway.New(lim, shed)
	var requests, mixed atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			key := fmt.Sprint(i)
			for ctx.Err() == nil {
				permit, err := gate.Enter(ctx, spillway.Request{Key: key})
				if err == nil {
					permit.Done(spillway.Success)
				}
				rule, o := lim.Rule().(limiter.Bucket), shed.Options()
				if rule.Burst != rule.Rate.Tokens || o.MinLimit != o.MaxLimit {
					mixed.Add(1)
				}
				requests.Add(1)
			}
		})
	}
	begin := time.Now()
	swaps := 0
	for time.Since(begin) < time.Second || requests.Load() < 50_000 && time.Since(begin) < 20*time.Second {
		n := 1000 * (1 + swaps%2)
		require.NoError(t, set.Apply(fmt.Appendf(nil, `{"rules": {"tenants": {"Rate": "%d/s", "Burst": %d}, "api": {"MinLimit": %d, "MaxLimit": %d}}}`, 1000*n, 1000*n, n, n)))
		swaps++
	}
	cancel()
	wg.Wait()
	require.GreaterOrEqual(t, requests.Load(), int64(50_000))
	require.Zero(t, mixed.Load())
	require.Zero(t, gate.Stats().InFlight)
	t.Logf("%d swaps during %d requests", swaps, requests.Load())
}
