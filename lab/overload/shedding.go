package overload

import (
	"math"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
)

// Shedding shows the figures of a shedder, and the counts of its gate.
func Shedding(gate *spillway.Gate, shed *shedder.Shedder) View {
	g, s := gate.Stats(), shed.Stats()
	v := View{
		Source:     gate,
		InFlight:   Known(float64(s.InFlight)),
		Overloaded: Known(s.Overloaded),
		Admitted:   Known(g.Admitted),
		Refused:    Known(g.Refused),
		Extra: map[string]float64{
			"max_pass":       s.MaxPass,
			"min_rt_ms":      s.MinRT.Seconds() * 1e3,
			"queue_delay_ms": s.QueueDelay.Seconds() * 1e3,
		},
	}
	if s.Overloaded {
		v.Reason = s.Why()
	}
	if s.CPUErr == nil {
		v.CPURaw, v.CPUSmoothed = Known(s.CPU), Known(s.CPUSmooth)
	}
	if !math.IsInf(s.Limit, 0) {
		v.Limit = Known(s.Limit)
	}
	return v
}
