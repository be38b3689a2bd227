package overload

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

// sensor is a CPU that reads as set.
type sensor struct {
	load float64
	err  error
}

func (s *sensor) Sample(now time.Time) stats.CPUSample {
	return stats.CPUSample{Time: now, Usage: s.load, Smoothed: s.load, Samples: 1, Err: s.err}
}

type noWaits struct{}

func (noWaits) Sample(now time.Time) stats.SchedSample { return stats.SchedSample{Time: now} }

func TestSheddingShowsWhatIsKnown(t *testing.T) {
	cpu, waiting := &sensor{err: errors.New("not yet")}, 0.0
	pool := shedder.Signal{Name: "pool", Threshold: 100, Read: func(time.Time) (float64, error) { return waiting, nil }}
	shed, err := shedder.New(&shedder.Options{CPU: cpu, Sched: noWaits{}, Signals: []shedder.Signal{pool}})
	require.NoError(t, err)
	gate := spillway.New(shed)
	at := time.Now()
	pass := func() {
		at = at.Add(time.Second)
		p, err := gate.Enter(t.Context(), spillway.Request{Arrived: at})
		require.NoError(t, err)
		p.DoneAt(at.Add(time.Millisecond), spillway.Success, 0)
	}
	pass()
	v := Shedding(gate, shed)
	require.Equal(t, []any{int64(1), int64(0), 0.0, false}, []any{*v.Admitted, *v.Refused, *v.InFlight, *v.Overloaded})
	require.Nil(t, v.CPURaw, "the sensor has failed")
	require.Nil(t, v.Limit, "nothing is limited")
	require.Empty(t, v.Reason)

	*cpu, waiting = sensor{load: 0.5}, 120
	pass()
	v = Shedding(gate, shed)
	require.True(t, *v.Overloaded)
	require.Equal(t, "pool", v.Reason, "the name of the signal")
	require.InDelta(t, 0.5, *v.CPURaw, 0)
	require.InDelta(t, 0.5, *v.CPUSmoothed, 0)
	require.NotNil(t, v.Limit)
	_, err = json.Marshal(v)
	require.NoError(t, err, "it goes through a pipe as JSON, which knows no infinity")
}
